"""Several engines: each decision goes to one that is ready, the same one for the same prompts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.backends import NotReady, Step
from structured_server.backends.vllm.replica import RETRY_S, Replica
from structured_server.backends.vllm.replicas import LOAD_FACTOR, Replicas
from structured_server.breaker import FAILURES, FIRST_PAUSE_S
from structured_server.core.reads import Prompt, ReadRequest
from structured_server.errors import (
    InvalidRequest,
    UpstreamError,
    UpstreamFailed,
    UpstreamProtocolError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from structured_server.metrics import Metrics
from tests.fake_backend import FakeBackend
from tests.shell.simulated_time import now, simulate, simulated

KEYS = [str(number).encode() for number in range(200)]
WIDTH = 64


def read(width: int = WIDTH) -> ReadRequest:
    """Return a read of one slot."""
    return ReadRequest(Prompt((1, 2, 3)), (0,) * width, (3,), (16, 18))


class Fleet:
    """Replicas over fake backends, and the backends."""

    def __init__(self, count: int) -> None:
        self.backends = [FakeBackend() for _ in range(count)]
        self.names = [f"http://engine-{number}:8000" for number in range(count)]
        self.replicas = Replicas(list(zip(self.names, self.backends, strict=True)), now)
        self.ready_counts: list[int] = []
        self.replicas.on_ready = self.ready_counts.append

    def __getitem__(self, number: int) -> Replica:
        return self.replicas.replicas[number]

    async def prepared(self, steps: list[Step] | None = None) -> None:
        """Walk `prepare` once."""
        async for step in self.replicas.prepare():
            if steps is not None:
                steps.append(step)

    def ready(self, *numbers: int) -> None:
        """Make these ready, and no others."""
        for number, each in enumerate(self.replicas.replicas):
            each.ready = number in numbers

    def chosen(self, key: bytes, avoid: Replica | None = None) -> int:
        """Return the number of the replica that a key is routed to."""
        engine = self.replicas.route(key, avoid=avoid)
        return next(n for n, each in enumerate(self.replicas.replicas) if each is engine)

    def map(self) -> dict[bytes, int]:
        """Return where each of many keys is routed to."""
        return {key: self.chosen(key) for key in KEYS}


@asynccontextmanager
async def fleet(count: int = 2) -> AsyncIterator[Fleet]:
    """Give replicas, to be closed at the end."""
    found = Fleet(count)
    yield found
    await found.replicas.close()
    assert all(each.closed for each in found.backends)


# Readiness


@simulated
async def test_it_is_ready_as_soon_as_one_engine_is() -> None:
    async with fleet(3) as engines:
        for number, each in enumerate(engines.backends):
            each.step_s = 10.0 * (number + 1)
        steps: list[Step] = []
        with pytest.raises(NotReady) as caught:
            await engines.prepared(steps)
        waits = "it waits for the engine to answer"
        assert "; ".join(f"{name}: {waits}" for name in engines.names) + "." == str(caught.value)
        while not any(each.ready for each in engines.replicas.replicas):
            with suppress(NotReady):
                await engines.prepared(steps)
        assert 20 == now(), "two steps of the quickest"
        assert ("engines", "one of 3 engines to be ready") == (steps[0].name, steps[0].waits_for)
        assert [True, False, False] == [each.ready for each in engines.replicas.replicas]
        await asyncio.sleep(100)
        assert [1, 2, 3] == engines.ready_counts


@simulated
async def test_what_is_ready_already_is_not_waited_for() -> None:
    async with fleet() as engines:
        await ready(engines)
        begun = now()
        for _ in range(3):
            await engines.prepared()
        assert begun == now()


@simulated
async def test_one_that_is_lost_is_left_out_until_it_is_back() -> None:
    async with fleet() as engines:
        await ready(engines)
        watching = asyncio.create_task(engines.replicas.watch())
        engines.backends[0].step_s = 3
        engines.backends[0].lose("it went away.")
        await asyncio.sleep(0.1)
        assert (False, "it went away.") == (engines[0].ready, engines[0].problem)
        assert {1} == set(engines.map().values())
        assert not watching.done()
        await asyncio.sleep(RETRY_S + 6)
        assert {0, 1} == set(engines.map().values())
        assert [1, 2, 1, 2] == engines.ready_counts
        watching.cancel()


@simulated
async def test_when_all_are_lost_it_is_lost_and_says_how_each_of_them_stands() -> None:
    async with fleet() as engines:
        await ready(engines)
        watching = asyncio.create_task(engines.replicas.watch())
        for number, each in enumerate(engines.backends):
            each.problems["engine"] = NotReady("nothing answers.")
            each.lose(f"loss {number}.")
        said = await watching
        assert "http://engine-0:8000: loss 0; http://engine-1:8000: loss 1." == said
        with pytest.raises(UpstreamUnreachable):
            engines.replicas.route(b"")
        with pytest.raises(NotReady):
            await engines.prepared()
        for each in engines.backends:
            each.problems.clear()
        await ready(engines)
        assert 0 == engines.ready_counts[3]


@simulated
async def test_a_retry_goes_on_showing_what_failed_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with fleet() as engines:
        for each in engines.backends:
            each.step_s = 1
            each.problems["warm_up"] = NotReady("it does not warm up.")
        with pytest.raises(NotReady):
            await engines.prepared()
        await asyncio.sleep(10)
        standing = set()
        for _ in range(40):
            await asyncio.sleep(0.25)
            standing.add(engines[0].problem)
        assert {"it does not warm up."} == standing
    said = [f"engine not ready: {name}: it does not warm up." for name in engines.names]
    assert said == caplog.messages


@simulated
async def test_a_retry_that_gets_past_what_failed_shows_where_it_is() -> None:
    async with fleet() as engines:
        backend = engines.backends[0]
        backend.problems["engine"] = NotReady("nothing answers.")
        with pytest.raises(NotReady):
            await engines.prepared()
        await asyncio.sleep(1)
        assert "nothing answers." == engines[0].problem
        backend.problems.clear()
        backend.step_s = 10
        await asyncio.sleep(15)
        assert "it waits for the first read" == engines[0].problem


@simulated
async def test_a_bug_in_a_check_does_not_leave_an_engine_out_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as engines:
        engines.backends[0].problems["engine"] = ZeroDivisionError()
        await ready(engines, 1)
        assert "(ZeroDivisionError)" in (engines[0].problem or "")
        engines.backends[0].problems.clear()
        await asyncio.sleep(1)
        assert engines[0].ready
        engines.backends[0].lose(ZeroDivisionError())
        await asyncio.sleep(0.1)
        assert 1 == engines.ready_counts[-1]
        await asyncio.sleep(1)
        assert 2 == engines.ready_counts[-1]
    assert {f"following {engines.names[0]} failed"} == {
        record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
    }


async def ready(engines: Fleet, count: int = 2) -> None:
    """Wait until so many are ready."""
    while sum(each.ready for each in engines.replicas.replicas) < count:
        with suppress(NotReady):
            await engines.prepared()
        await asyncio.sleep(0.1)


# Where a decision goes


@simulated
async def test_the_same_key_goes_to_the_same_engine_and_keys_are_spread() -> None:
    engines = Fleet(4)
    engines.ready(0, 1, 2, 3)
    places = engines.map()
    assert places == engines.map()
    counts = [list(places.values()).count(number) for number in range(4)]
    assert min(counts) > len(KEYS) / 4 / 2


@given(st.integers(2, 6), st.data())
def test_when_an_engine_leaves_only_its_keys_move_and_when_it_is_back_they_do(
    count: int, data: st.DataObject
) -> None:
    engines = Fleet(count)
    engines.ready(*range(count))
    before = engines.map()
    gone = data.draw(st.integers(0, count - 1))
    engines.ready(*(number for number in range(count) if number != gone))
    after = engines.map()
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == gone}
    engines.ready(*range(count))
    assert before == engines.map()


def test_where_keys_go_does_not_depend_on_the_order_in_which_engines_are_named() -> None:
    one = Fleet(3)
    names = list(zip(one.names, one.backends, strict=True))
    other = Replicas(names[::-1], now)
    one.ready(0, 1, 2)
    for each in other.replicas:
        each.ready = True

    def place(key: bytes) -> str:
        engine = other.route(key)
        assert isinstance(engine, Replica)
        return engine.name

    assert {key: one.names[number] for key, number in one.map().items()} == {key: place(key) for key in KEYS}


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.sampled_from(KEYS))
def test_no_engine_is_chosen_that_has_much_more_to_do_than_the_others(
    canvases: Sequence[int], key: bytes
) -> None:
    engines = Fleet(len(canvases))
    engines.ready(*range(len(canvases)))
    for each, load in zip(engines.replicas.replicas, canvases, strict=True):
        each.load = WIDTH * load
    with_it = canvases[engines.chosen(key)] + 1
    assert with_it <= LOAD_FACTOR * (sum(canvases) + 1) / len(canvases) + 1


def test_a_little_load_does_not_take_a_key_from_its_engine() -> None:
    engines = Fleet(2)
    engines.ready(0, 1)
    key = next(key for key in KEYS if engines.chosen(key) == 0)
    engines[0].load = WIDTH
    assert 0 == engines.chosen(key)
    engines[0].load = 2 * WIDTH
    assert 1 == engines.chosen(key)


def test_an_engine_that_is_to_be_avoided_is_chosen_only_where_there_is_no_other() -> None:
    engines = Fleet(3)
    engines.ready(0, 1, 2)
    assert {1, 2} == {engines.chosen(key, avoid=engines[0]) for key in KEYS}
    engines.ready(0)
    assert {0} == {engines.chosen(key, avoid=engines[0]) for key in KEYS}


def test_who_avoids_the_engine_of_a_key_goes_where_all_do_that_cannot_have_it() -> None:
    """So that a retry finds the prefix that the key's decisions leave there while the first one is away."""
    engines = Fleet(3)
    engines.ready(0, 1, 2)
    key = next(key for key in KEYS if engines.chosen(key) == 0)
    instead = engines.chosen(key, avoid=engines[0])
    engines.ready(1, 2)
    assert instead == engines.chosen(key)


# Engines that fail


async def fail(engines: Fleet, number: int, error: Exception | None, times: int = 1) -> None:
    """Let reads of an engine end in an error, or well."""
    backend = engines.backends[number]
    for _ in range(times):
        if error is not None:
            backend.failures[len(backend.batches)] = error
            with pytest.raises(type(error)):
                await engines[number].read([read()])
        else:
            await engines[number].read([read()])


@pytest.mark.parametrize(
    "kind", [UpstreamFailed, UpstreamTimeout, UpstreamUnreachable, UpstreamProtocolError]
)
@simulated
async def test_an_engine_that_fails_again_and_again_is_left_alone_and_then_tried_once(
    kind: type[UpstreamError],
) -> None:
    engines = Fleet(2)
    engines.ready(0, 1)
    await fail(engines, 0, kind("it broke."), FAILURES - 1)
    assert {0, 1} == set(engines.map().values())
    await fail(engines, 0, kind("it broke."))
    assert {1} == set(engines.map().values())
    await asyncio.sleep(FIRST_PAUSE_S)
    assert {0, 1} == set(engines.map().values()), "somebody is to try it"
    engines.backends[0].delay_s = 1
    trying = asyncio.create_task(engines[0].read([read()]))
    await asyncio.sleep(0.5)
    assert {1} == set(engines.map().values()), "and nobody else meanwhile"
    await trying
    assert {0, 1} == set(engines.map().values())


@pytest.mark.parametrize("error", [UpstreamRejected("no."), InvalidRequest("no.")])
@simulated
async def test_what_it_refuses_does_not_speak_against_an_engine(error: Exception) -> None:
    engines = Fleet(2)
    engines.ready(0, 1)
    await fail(engines, 0, error, 3 * FAILURES)
    assert {0, 1} == set(engines.map().values())


@simulated
async def test_where_all_of_them_fail_they_are_asked_all_the_same() -> None:
    engines = Fleet(2)
    engines.ready(0, 1)
    for number in (0, 1):
        await fail(engines, number, UpstreamFailed("it broke."), FAILURES)
    assert {0, 1} == set(engines.map().values())


@simulated
async def test_an_engine_that_says_nothing_until_nobody_waits_any_more_is_left_alone() -> None:
    engines = Fleet(2)
    engines.ready(0, 1)
    engines.backends[0].delay_s = 100
    for _ in range(FAILURES):
        assert {0, 1} == set(engines.map().values())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await engines[0].read([read()])
        engines[0].given_up()
    assert {1} == set(engines.map().values())


@simulated
async def test_a_caller_who_leaves_says_nothing_about_an_engine() -> None:
    engines = Fleet(2)
    engines.ready(0, 1)
    engines.backends[0].delay_s = 100
    for _ in range(3 * FAILURES):
        leaver = asyncio.create_task(engines[0].read([read()]))
        await asyncio.sleep(1)
        leaver.cancel()
        await asyncio.wait([leaver])
    assert {0, 1} == set(engines.map().values())
    assert 0 == engines[0].load


# Work


@simulated
async def test_what_is_in_flight_is_counted_in_canvas_positions() -> None:
    engines = Fleet(2)
    engines.ready(0)
    engines.backends[0].delay_s = 1
    tasks = [
        asyncio.ensure_future(engines.replicas.read([read(), read(16)])),
        asyncio.ensure_future(engines.replicas.generate(Prompt((1,)), 5, 0)),
    ]
    await asyncio.sleep(0.25)
    assert (WIDTH + 16 + WIDTH, 0) == (engines[0].load, engines[1].load)
    await asyncio.gather(*tasks)
    async with engines.replicas.chat(b"{}") as relayed:
        assert (WIDTH, 200) == (engines[0].load, relayed.status)
    assert 0 == engines[0].load
    assert [b"{}"] == engines.backends[0].chats


def test_they_can_do_what_all_that_are_ready_can() -> None:
    engines = Fleet(3)
    able = (
        FakeBackend(widths=[16, 64], max_model_len=4096, images=True),
        FakeBackend(widths=[16, 32, 64], max_model_len=None, images=True),
        FakeBackend(widths=[64], max_model_len=2048),
    )
    for backend, other in zip(engines.backends, able, strict=True):
        backend.capabilities = other.capabilities
    for numbers, widths, length, images in (
        ((0, 1), (16, 64), 4096, True),
        ((1,), (16, 32, 64), None, True),
        ((0, 1, 2), (64,), 2048, False),
        ((), (64,), 2048, False),
    ):
        engines.ready(*numbers)
        found = engines.replicas.capabilities
        assert (widths, length, images) == (found.widths, found.max_model_len, found.images)


def test_how_each_engine_stands_is_in_the_metrics() -> None:
    async def scenario() -> None:
        engines, metrics = Fleet(2), Metrics()
        for each in engines.replicas.replicas:
            metrics.watch_replica(each)
        engines.ready(1)
        engines[1].load = 128
        await fail(engines, 0, UpstreamFailed("it broke."), FAILURES)

        def said(name: str, number: int, **labels: str) -> float | None:
            labels["upstream"] = engines.names[number]
            return metrics.registry.get_sample_value(f"structured_server_upstream_{name}", labels)

        assert (0, 1) == (said("ready", 0), said("ready", 1))
        assert (0, 128) == (said("positions", 0), said("positions", 1))
        states = ("closed", "open", "half_open")
        assert [0, 1, 0] == [said("breaker", 0, state=state) for state in states]
        assert [1, 0, 0] == [said("breaker", 1, state=state) for state in states]

    simulate(scenario())
