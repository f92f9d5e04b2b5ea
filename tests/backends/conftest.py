"""Fixtures over the fake engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from structured_server.backends.vllm import VllmBackend
from structured_server.backends.vllm.client import Client
from tests.fake_engine import FakeEngine
from tests.toy_engine import ToyEngineTokenizer

Connect = Callable[..., VllmBackend]


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    """Run a fake engine that does everything right until it is told otherwise."""
    async with FakeEngine() as engine:
        yield engine


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[Client]:
    """Connect to it."""
    client = Client(engine.url, timeout_s=5.0)
    yield client
    await client.close()


@pytest.fixture
async def connect(engine: FakeEngine) -> AsyncIterator[Connect]:
    """Make backends over it, to be closed after the test."""
    async with AsyncExitStack() as stack:

        def connect(**settings: Any) -> VllmBackend:
            agreed: dict[str, Any] = {"model": engine.model, "tokenizer": ToyEngineTokenizer(), "canvas": 64}
            backend = VllmBackend(engine.url, **agreed | settings)
            stack.push_async_callback(backend.close)
            return backend

        yield connect


@pytest.fixture
def backend(connect: Connect) -> VllmBackend:
    """Make a backend that agrees with the engine."""
    return connect()
