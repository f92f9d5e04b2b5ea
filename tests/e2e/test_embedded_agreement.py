"""The embedded model three ways: ONNX Runtime, transformers and vLLM give the same log-probabilities."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from structured_server.backends.embedded import EmbeddedBackend
from structured_server.backends.vllm import VllmBackend
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from tests.engine.server import Engine, Oracle

CHECKPOINT = Path(__file__).parents[2] / "models" / "triage" / "checkpoint"
WINDOW = 1024
PROMPTS = (12, 300, WINDOW - 20, WINDOW + 30, 1500)
WIDTHS = (16, 32, 64)


@pytest.fixture(scope="module")
def own_oracle() -> Iterator[Oracle]:
    """Transformers in process on the embedded model's checkpoint."""
    oracle = Oracle(CHECKPOINT)
    yield oracle
    oracle.close()


@pytest.fixture(scope="module")
def own_engine(start_engine: Callable[..., Engine]) -> Engine:
    """A real vLLM that serves the embedded model's checkpoint."""
    return start_engine(CHECKPOINT)


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    """The embedded model's tokenizer."""
    return load_tokenizer(str(CHECKPOINT))


def _requests(tokenizer: LoadedTokenizer) -> list[ReadRequest]:
    choose = random.Random(7)
    noise = tokenizer.noise_ids
    requests = []
    for length in PROMPTS:
        prompt = Prompt(tuple(choose.choice(noise) for _ in range(length)))
        for width in WIDTHS:
            canvas = tuple(choose.choice(noise) for _ in range(width))
            positions = tuple(sorted(choose.sample(range(width), 3)))
            labels = tuple(sorted(choose.sample(list(noise), 20)))
            requests.append(ReadRequest(prompt, canvas, positions, labels))
    return requests


def _largest_difference(
    reads: list[Read], expected: list[list[list[float]]], requests: list[ReadRequest]
) -> float:
    return max(
        abs(row.logprobs[token] - wanted)
        for read, rows, request in zip(reads, expected, requests, strict=True)
        for row, wanted_row in zip(read.rows, rows, strict=True)
        for token, wanted in zip(request.label_ids, wanted_row, strict=True)
    )


async def _read_all(backend: EmbeddedBackend | VllmBackend, requests: list[ReadRequest]) -> list[Read]:
    async for _ in backend.prepare():
        pass
    try:
        return [read for request in requests for read in await backend.read([request])]
    finally:
        await backend.close()


def test_three_engines_agree_on_both_sides_of_the_sliding_window(
    own_engine: Engine, own_oracle: Oracle, tokenizer: LoadedTokenizer
) -> None:
    requests = _requests(tokenizer)
    expected = [own_oracle.read(r.prompt.ids, r.canvas, r.positions, r.label_ids) for r in requests]
    embedded = asyncio.run(_read_all(EmbeddedBackend.packaged(), requests))
    assert 1e-3 > _largest_difference(embedded, expected, requests)
    vllm = VllmBackend(own_engine.url, model="dgemma", tokenizer=tokenizer, canvas=64)
    assert 1e-3 > _largest_difference(asyncio.run(_read_all(vllm, requests)), expected, requests)
