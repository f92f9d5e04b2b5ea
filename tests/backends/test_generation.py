"""Writing through the vLLM backend: up to the token that ends it, and with every failure in its type."""

from __future__ import annotations

import asyncio

import pytest

from structured_server.backends import Generation
from structured_server.backends.vllm import VllmBackend
from structured_server.core.reads import Prompt
from structured_server.errors import (
    UpstreamFailed,
    UpstreamProtocolError,
    UpstreamRejected,
    UpstreamUnreachable,
)
from tests.backends.conftest import Connect
from tests.backends.reads import until, walk
from tests.fake_engine import FakeEngine, Faults

PROMPT = Prompt((2, 3, 5))
STOP = 6
THOUGHT = tuple(range(10_100, 10_120))


@pytest.mark.parametrize(("tokens", "stopped"), [(19, False), (20, False), (21, True), (500, True)])
async def test_a_thought_comes_back_as_ids_and_says_whether_it_came_to_its_end(
    engine: FakeEngine, backend: VllmBackend, tokens: int, stopped: bool
) -> None:
    engine.thought = THOUGHT
    assert Generation(THOUGHT[:tokens], stopped) == await backend.generate(PROMPT, tokens, STOP)
    (body,) = engine.generations
    assert ([2, 3, 5], tokens, [STOP]) == (body["prompt"], body["max_tokens"], body["stop_token_ids"])
    assert [] == engine.reads


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        (Faults(status=400), UpstreamRejected),
        (Faults(status=500), UpstreamFailed),
        (Faults(reset=True), UpstreamUnreachable),
        (Faults(body="truncated"), UpstreamProtocolError),
    ],
)
async def test_a_failure_to_write_keeps_its_type(
    engine: FakeEngine, backend: VllmBackend, faults: Faults, error: type[Exception]
) -> None:
    engine.faults = faults
    with pytest.raises(error):
        await backend.generate(PROMPT, 10, STOP)


async def test_writing_may_take_longer_than_a_read(engine: FakeEngine, connect: Connect) -> None:
    engine.faults = Faults(delay_s=0.2)
    written = await connect(read_timeout_s=0.05).generate(PROMPT, 10, STOP)
    assert written.stopped


async def test_a_thought_that_nobody_waits_for_any_more_frees_the_engine(
    engine: FakeEngine, backend: VllmBackend
) -> None:
    engine.faults = Faults(hang=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await backend.generate(PROMPT, 10, STOP)
    await until(lambda: engine.in_flight == 0 and engine.hung_up == 1)


async def test_writing_that_finds_the_engine_gone_makes_it_look_at_once(
    engine: FakeEngine, connect: Connect
) -> None:
    backend = connect(canvas=16)
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    await asyncio.sleep(0)
    await engine.stop()
    with pytest.raises(UpstreamUnreachable):
        await backend.generate(PROMPT, 10, STOP)
    assert f"nothing answers at {engine.url}" in await asyncio.wait_for(watching, 0.5)
