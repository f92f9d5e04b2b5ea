"""The shipped model with its tokenizer, and a backend that reads with it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from structured_server.backends.embedded import DemoModel, EmbeddedBackend, load_demo_model
from structured_server.core.reads import Prompt, ReadRequest
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer


@pytest.fixture(scope="session")
def demo_model() -> DemoModel:
    """What the shipped model says of itself."""
    return load_demo_model()


@pytest.fixture(scope="session")
def own_tokenizer(demo_model: DemoModel) -> LoadedTokenizer:
    """The shipped model's tokenizer."""
    return load_tokenizer(str(demo_model.folder))


@pytest.fixture
async def backend(demo_model: DemoModel, own_tokenizer: LoadedTokenizer) -> AsyncIterator[EmbeddedBackend]:
    """A ready backend that has read no prompt but that of its warm-up."""
    backend = EmbeddedBackend(demo_model.weights, tokenizer=own_tokenizer, threads=1)
    async for _ in backend.prepare():
        pass
    yield backend
    await backend.close()


class Requests:
    """Makes reads of random ids; the same seed gives the same ones."""

    def __init__(self, tokenizer: LoadedTokenizer, seed: int) -> None:
        self._noise = tokenizer.noise_ids
        self._choose = random.Random(seed)

    def ids(self, count: int) -> tuple[int, ...]:
        """Return random ids."""
        return tuple(self._choose.choice(self._noise) for _ in range(count))

    def draws(self, prompt: tuple[int, ...], *, width: int = 16, count: int = 1) -> list[ReadRequest]:
        """Return reads of one prompt that differ in their canvas's ids."""
        positions = tuple(sorted(self._choose.sample(range(width), 3)))
        labels = tuple(sorted(set(self.ids(8))))
        return [ReadRequest(Prompt(prompt), self.ids(width), positions, labels) for _ in range(count)]


@pytest.fixture
def requests(own_tokenizer: LoadedTokenizer) -> Requests:
    """Random reads."""
    return Requests(own_tokenizer, 5)
