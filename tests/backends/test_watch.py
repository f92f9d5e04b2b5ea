"""Watching: narrower widths warm up behind the widest, and a lost engine is noticed at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from structured_server.backends.vllm import VllmBackend
from structured_server.backends.vllm.backend import POLL_S
from structured_server.errors import UpstreamError
from tests.backends.conftest import Connect
from tests.backends.reads import read_request, until, walk
from tests.fake_engine import FakeEngine, Faults


async def test_narrower_widths_become_available_one_by_one_after_the_widest(
    engine: FakeEngine, backend: VllmBackend
) -> None:
    await walk(backend)
    seen = [backend.capabilities.widths]
    watching = asyncio.create_task(backend.watch())
    async with asyncio.timeout(3):
        while len(seen[-1]) < 4:
            await asyncio.sleep(0)
            if backend.capabilities.widths != seen[-1]:
                seen.append(backend.capabilities.widths)
    assert [(64,), (16, 64), (16, 32, 64), (16, 32, 48, 64)] == seen
    assert [64, 16, 32, 48] == [len(read.canvas) for read in engine.reads]
    assert (128, 4096) == (backend.capabilities.max_label_ids, backend.capabilities.max_model_len)
    watching.cancel()


async def test_where_a_narrower_width_fails_the_widths_that_are_warm_stay(
    engine: FakeEngine, backend: VllmBackend
) -> None:
    await walk(backend)
    engine.faults = Faults(good_reads=2, body="nan")  # the widest and the first narrower one
    watching = asyncio.create_task(backend.watch())
    await until(lambda: len(engine.reads) == 3 and engine.in_flight == 0)
    await asyncio.sleep(0.02)
    assert (16, 64) == backend.capabilities.widths
    assert 3 == len(engine.reads), "the widths after the one that failed are left alone"
    assert not watching.done()
    watching.cancel()


@pytest.mark.parametrize("faults", [Faults(status=500, dead=True), Faults(reset=True, dead=True)])
async def test_a_failed_read_makes_it_look_at_the_engines_health_at_once(
    engine: FakeEngine, connect: Connect, faults: Faults
) -> None:
    backend = connect(canvas=16)
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    await asyncio.sleep(0)
    engine.faults = faults
    begun = time.monotonic()
    with pytest.raises(UpstreamError):
        await backend.read([read_request()])
    assert "(/health answered 503)" in await watching
    assert time.monotonic() - begun < POLL_S / 2


async def test_an_engine_that_went_away_is_noticed_by_the_read_that_finds_it_gone(
    engine: FakeEngine, connect: Connect
) -> None:
    backend = connect(canvas=16)
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    await asyncio.sleep(0)
    await engine.stop()
    begun = time.monotonic()
    with pytest.raises(UpstreamError):
        await backend.read([read_request()])
    assert f"nothing answers at {engine.url}" in await watching
    assert time.monotonic() - begun < POLL_S / 2


async def test_without_any_read_a_lost_engine_is_noticed_at_the_next_poll(
    engine: FakeEngine, connect: Connect
) -> None:
    """It polls on while the engine is well: the first poll finds it so, the second does not."""
    backend = connect(canvas=16)
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    done, _ = await asyncio.wait([watching], timeout=POLL_S + 0.2)
    assert not done
    await engine.stop()
    assert f"nothing answers at {engine.url}" in await asyncio.wait_for(watching, POLL_S + 1)


@pytest.mark.parametrize("faults", [Faults(status=500), Faults(status=400), Faults(reset=True)])
async def test_a_read_that_failed_on_a_living_engine_loses_nothing(
    engine: FakeEngine, connect: Connect, faults: Faults
) -> None:
    backend = connect(canvas=16)
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    await asyncio.sleep(0)
    engine.faults = faults
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await backend.read([read_request()])
        await asyncio.sleep(0.02)
    engine.faults = Faults()
    assert await backend.read([read_request()])
    assert not watching.done()
    watching.cancel()


async def test_cancelling_the_watch_ends_the_warm_up_too(engine: FakeEngine, backend: VllmBackend) -> None:
    await walk(backend)
    engine.faults = Faults(hang=True)
    watching = asyncio.create_task(backend.watch())
    await until(lambda: engine.in_flight == 1)
    watching.cancel()
    await until(lambda: engine.in_flight == 0)


async def test_an_earlier_loss_is_forgotten_by_the_next_preparation(
    engine: FakeEngine, connect: Connect
) -> None:
    backend = connect(canvas=16)
    await engine.stop()
    with pytest.raises(UpstreamError):
        await backend.read([read_request()])
    await engine.start()
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    await asyncio.sleep(0.05)
    assert not watching.done()
    watching.cancel()
