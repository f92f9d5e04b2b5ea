"""Readiness: it tells the step, the seconds in it and the problem, and never believes a lost engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from structured_server.backends import NotReady
from structured_server.errors import Loading
from structured_server.metrics import Metrics
from structured_server.readiness import RETRY_AFTER_S, RETRY_S, ReadinessMonitor
from tests.fake_backend import FakeBackend
from tests.shell.simulated_time import simulated


@asynccontextmanager
async def followed(backend: FakeBackend, metrics: Metrics | None = None) -> AsyncIterator[ReadinessMonitor]:
    """Follow a backend in a task, through its first preparation."""
    monitor = ReadinessMonitor(backend, metrics or Metrics())
    following = asyncio.create_task(monitor.run())
    await asyncio.sleep(RETRY_S / 2)
    yield monitor
    assert not following.done(), "following a backend never ends by itself"
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


def count(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"structured_server_{name}")


def test_before_the_first_check_nothing_is_ready() -> None:
    monitor = ReadinessMonitor(FakeBackend(), Metrics())
    now = monitor.now
    assert (False, "starting", "the first check", None) == (now.ready, now.step, now.waits_for, now.problem)
    with pytest.raises(Loading) as caught:
        monitor.require()
    assert "the server is not ready: starting, waiting 0 s for the first check." == caught.value.message
    assert RETRY_AFTER_S == caught.value.retry_after_s


@simulated
async def test_a_backend_that_passes_every_step_is_ready() -> None:
    metrics = Metrics()
    async with followed(FakeBackend(), metrics) as monitor:
        assert (True, "ready", "nothing", None) == (
            monitor.now.ready,
            monitor.now.step,
            monitor.now.waits_for,
            monitor.now.problem,
        )
        monitor.require()
        assert 1 == count(metrics, "ready")


@simulated
async def test_a_step_that_takes_long_is_shown_while_it_does() -> None:
    backend = FakeBackend()
    backend.step_s = 60
    async with followed(backend) as monitor:
        assert ("engine", None) == (monitor.now.step, monitor.now.problem)
        await asyncio.sleep(60)
        assert ("warm_up", "the first read") == (monitor.now.step, monitor.now.waits_for)
        assert not monitor.now.ready
        await asyncio.sleep(60)
        assert monitor.now.ready


@simulated
async def test_past_the_step_that_failed_the_next_ones_are_shown_again() -> None:
    backend = FakeBackend()
    backend.problems = {"engine": NotReady("nothing answers.")}
    async with followed(backend) as monitor:
        backend.problems, backend.step_s = {}, 60
        await asyncio.sleep(RETRY_S)
        assert ("engine", "nothing answers.") == (monitor.now.step, monitor.now.problem)
        await asyncio.sleep(60)
        assert (False, "warm_up", None) == (monitor.now.ready, monitor.now.step, monitor.now.problem)


@pytest.mark.parametrize("step", ["engine", "warm_up"], ids=["first", "last"])
@simulated
async def test_a_step_that_fails_is_shown_with_its_problem_through_every_retry(step: str) -> None:
    backend = FakeBackend()
    backend.problems = {step: NotReady("it is broken.")}
    async with followed(backend) as monitor:
        for _ in range(60):
            await asyncio.sleep(RETRY_S / 7)
            assert (False, step, "it is broken.") == (
                monitor.now.ready,
                monitor.now.step,
                monitor.now.problem,
            )
        with pytest.raises(Loading) as caught:
            monitor.require()
        assert caught.value.message.startswith(f"the server is not ready: {step}, waiting ")
        assert caught.value.message.endswith(" it is broken.")
        backend.problems = {}
        await asyncio.sleep(RETRY_S)
        assert monitor.now.ready


@simulated
async def test_the_seconds_count_from_when_the_step_was_entered_not_from_the_last_retry() -> None:
    backend = FakeBackend()
    backend.problems = {"warm_up": NotReady("it is broken.")}
    async with followed(backend) as monitor:
        entered = time.monotonic()
        for _ in range(5):
            await asyncio.sleep(RETRY_S)
            at_least = time.monotonic() - entered
            assert at_least <= monitor.now.seconds
        backend.problems = {"engine": NotReady("nothing answers.")}
        before = monitor.now.seconds
        await asyncio.sleep(RETRY_S)
        assert "engine" == monitor.now.step
        assert monitor.now.seconds < before


@simulated
async def test_a_problem_that_changes_is_shown_as_it_is_now() -> None:
    backend = FakeBackend()
    backend.problems = {"engine": NotReady("nothing answers.")}
    async with followed(backend) as monitor:
        backend.problems = {"engine": NotReady("it says that it is dead.")}
        await asyncio.sleep(RETRY_S)
        assert ("engine", "it says that it is dead.") == (monitor.now.step, monitor.now.problem)
        backend.problems = {"warm_up": NotReady("the read failed.")}
        await asyncio.sleep(RETRY_S)
        assert ("warm_up", "the read failed.") == (monitor.now.step, monitor.now.problem)


@simulated
async def test_an_engine_that_is_lost_is_not_ready_at_once_and_prepared_again() -> None:
    backend, metrics = FakeBackend(), Metrics()
    async with followed(backend, metrics) as monitor:
        backend.problems = {"engine": NotReady("nothing answers.")}
        backend.lose("the engine closed the connection.")
        await asyncio.sleep(RETRY_S / 10)
        assert (False, "engine", "the engine to come back", "the engine closed the connection.") == (
            monitor.now.ready,
            monitor.now.step,
            monitor.now.waits_for,
            monitor.now.problem,
        )
        assert (0, 1) == (count(metrics, "ready"), count(metrics, "engine_losses_total"))
        with pytest.raises(Loading):
            monitor.require()
        await asyncio.sleep(RETRY_S)
        assert "nothing answers." == monitor.now.problem
        backend.problems = {}
        await asyncio.sleep(RETRY_S)
        monitor.require()
        assert (1, 1) == (count(metrics, "ready"), count(metrics, "engine_losses_total"))


@simulated
async def test_a_bug_in_a_check_is_told_logged_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend()
    backend.problems = {"warm_up": ZeroDivisionError("secret")}
    async with followed(backend) as monitor:
        assert "warm_up" == monitor.now.step
        assert "the check itself failed (ZeroDivisionError); the log has more." == monitor.now.problem
        assert [ZeroDivisionError] == [record.exc_info and record.exc_info[0] for record in caplog.records]
        backend.problems = {}
        await asyncio.sleep(RETRY_S)
        assert monitor.now.ready


@simulated
async def test_a_bug_in_watching_counts_as_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """A server that nobody watches must not go on saying that it is ready."""
    backend = FakeBackend()
    async with followed(backend) as monitor:
        backend.problems = {"engine": NotReady("nothing answers.")}
        backend.lose(ZeroDivisionError("secret"))
        await asyncio.sleep(RETRY_S / 10)
        assert not monitor.now.ready
        assert "watching it failed (ZeroDivisionError); the log has more." == monitor.now.problem
        assert "watching the engine failed" in caplog.text
        backend.problems = {}
        await asyncio.sleep(RETRY_S)
        assert monitor.now.ready


@simulated
async def test_the_same_problem_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="structured_server")
    backend = FakeBackend()
    backend.problems = {"engine": NotReady("nothing answers.")}
    async with followed(backend):
        await asyncio.sleep(10 * RETRY_S)
        backend.problems = {}
        await asyncio.sleep(RETRY_S)
    assert ["not ready: engine: nothing answers.", "ready"] == [r.getMessage() for r in caplog.records]
