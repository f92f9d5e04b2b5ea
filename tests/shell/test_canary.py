"""The canary: it tells right from wrong, costs callers nothing, and keeps nothing awake."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from structured_server.admission import DEFAULT_LANE, Lane, Rank, Weight
from structured_server.api.app import create_app
from structured_server.api.service import assemble
from structured_server.canary import LARGEST_DRIFT, POLL_S, Canary
from structured_server.core.policy import ByType, FittedPolicy
from structured_server.core.reads import ReadRequest
from structured_server.driver import Query
from structured_server.errors import Overloaded, UpstreamFailed
from structured_server.readiness import ReadinessMonitor
from structured_server.settings import Settings
from tests.fake_backend import FakeBackend
from tests.shell.deciding import TEAMS, Deciding, query, sure, unsure
from tests.shell.simulated_time import now, simulated
from tests.toy import ToyTokenizer

EVERY_S = 60.0
SOON = 2 * POLL_S  # within which it is noticed that a run is due, or that the engine is ready
RIGHT = {"urgent": "true", "team": TEAMS[0], "known": "true"}
ASKED = query(state="a clear pump", samples=1)
_TOY = ToyTokenizer()


def wrong(request: ReadRequest, token_id: int, position: int) -> float:
    """Prefer whatever is not right."""
    return -14.0 - sure(request, token_id, position)


def less_sure(request: ReadRequest, token_id: int, position: int) -> float:
    """Say the same as `sure`, with less certainty."""
    return -0.3 if sure(request, token_id, position) > -1 else -1.5


@dataclass(slots=True)
class Cage:
    """A canary over a fake backend, with what it does in reach."""

    backend: FakeBackend = field(default_factory=lambda: FakeBackend(logprob=sure))
    asked: Query = ASKED
    expected: Mapping[str, str] = field(default_factory=lambda: RIGHT)
    capacity: Weight = Weight(1024, 16)
    deciding: Deciding = field(init=False)
    readiness: ReadinessMonitor = field(init=False)
    canary: Canary = field(init=False)

    def __post_init__(self) -> None:
        self.deciding = Deciding(self.backend, self.capacity)
        self.readiness = ReadinessMonitor(self.backend, self.deciding.metrics)
        self.canary = Canary(
            self.asked,
            self.expected,
            every_s=EVERY_S,
            driver=self.deciding.driver,
            admission=self.deciding.admission,
            readiness=self.readiness,
            metrics=self.deciding.metrics,
        )

    @property
    def right(self) -> float | None:
        """The gauge, None while there is none."""
        return self.deciding.metrics.registry.get_sample_value("structured_server_canary_right")

    def runs(self, outcome: str) -> float:
        """Return how many runs came out so."""
        return self.deciding.counted("canary_runs_total", outcome=outcome)

    async def traffic(self, number: int = 0) -> None:
        """Have a caller ask something."""
        await self.deciding.driver.decide(query(state=f"caller {number}", samples=1))

    async def runs_again(self) -> None:
        """Wait for a run that a caller's request has made worth its while."""
        before = len(self.backend.batches)
        await self.traffic(before)
        await asyncio.sleep(EVERY_S + SOON)
        assert before + 2 == len(self.backend.batches)


@asynccontextmanager
async def caged(**parts: Any) -> AsyncIterator[Cage]:
    """Let a canary live until the block ends."""
    cage = Cage(**parts)
    tasks = [asyncio.create_task(cage.readiness.run()), asyncio.create_task(cage.canary.run())]
    await asyncio.sleep(SOON)
    yield cage
    for task in tasks:
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.sleep(1000)
    assert cage.deciding.idle


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "structured_server.canary"
    ]


# What it finds


@simulated
async def test_a_right_engine_is_found_right_and_before_that_nothing_is_said() -> None:
    async with caged() as cage:
        await asyncio.sleep(EVERY_S - 2 * SOON)
        assert (None, 0) == (cage.right, len(cage.backend.batches))
        await asyncio.sleep(3 * SOON)
        assert (1, 1, 0) == (cage.right, cage.runs("right"), cage.runs("wrong"))


def test_a_wrong_engine_is_told_once_and_once_more_when_it_is_right_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @simulated
    async def scenario() -> None:
        async with caged(backend=FakeBackend(logprob=wrong)) as cage:
            await asyncio.sleep(EVERY_S + SOON)
            assert (0, 1) == (cage.right, cage.runs("wrong"))
            for _ in range(3):
                await cage.runs_again()
            assert (0, 4) == (cage.right, cage.runs("wrong"))
            assert [("WARNING", "the canary is answered wrongly: urgent, team, known")] == lines(caplog)
            caplog.clear()
            cage.backend.logprob = sure
            for _ in range(2):
                await cage.runs_again()
            assert (1, 2) == (cage.right, cage.runs("right"))

    with caplog.at_level(logging.INFO):
        scenario()
    assert ("INFO", "the canary is answered rightly") in lines(caplog)
    assert 1 == len([line for line in lines(caplog) if "rightly" in line[1]])


@simulated
async def test_one_wrong_answer_is_enough_and_what_is_not_expected_does_not_matter() -> None:
    no = _TOY.encode("no")[0]

    def all_no(request: ReadRequest, token_id: int, position: int) -> float:
        return -0.001 if token_id == no else sure(request, token_id, position) - 9

    async with caged(backend=FakeBackend(logprob=all_no)) as cage:
        await asyncio.sleep(EVERY_S + SOON)
        assert 0 == cage.right
    async with caged(backend=FakeBackend(logprob=all_no), expected={"team": TEAMS[0]}) as cage:
        await asyncio.sleep(EVERY_S + SOON)
        assert 1 == cage.right


def test_an_engine_that_fails_is_counted_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    @simulated
    async def scenario() -> None:
        async with caged() as cage:
            cage.backend.failures = dict.fromkeys(range(6), UpstreamFailed("it broke."))
            await asyncio.sleep(EVERY_S + SOON)
            assert (None, 1) == (cage.right, cage.runs("failed")), "that says nothing of right and wrong"
            cage.backend.failures = {}
            await cage.runs_again()
            assert (1, 1, 1) == (cage.right, cage.runs("failed"), cage.runs("right"))

    with caplog.at_level(logging.INFO):
        scenario()
    assert [
        ("WARNING", "the canary could not be read: engine_error"),
        ("INFO", "the canary is answered rightly"),
    ] == lines(caplog)


def test_a_bug_does_not_end_it_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    @simulated
    async def scenario() -> None:
        async with caged() as cage:
            for runs in (1, 2):
                cage.backend.failures = {len(cage.backend.batches) + runs - 1: KeyError("a clear pump")}
                if runs == 1:
                    await asyncio.sleep(EVERY_S + SOON)
                else:
                    await cage.runs_again()
                assert runs == cage.runs("failed")

    scenario()
    assert [("WARNING", "the canary could not be read")] == lines(caplog)


@simulated
async def test_where_it_finds_no_room_that_is_no_failure() -> None:
    async with caged() as cage:
        cage.backend.failures = {0: Overloaded("full.")}
        await asyncio.sleep(EVERY_S + SOON)
        assert (1, 0) == (len(cage.backend.batches), cage.runs("failed"))
        await asyncio.sleep(EVERY_S + SOON)
        assert (2, 1) == (len(cage.backend.batches), cage.runs("right"))


# Drift


def test_answers_that_move_without_a_reason_are_told_although_they_are_right(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @simulated
    async def scenario() -> None:
        async with caged() as cage:
            await asyncio.sleep(EVERY_S + SOON)
            await cage.runs_again()
            assert 0 == cage.deciding.counted("canary_drifts_total")
            cage.backend.logprob = less_sure
            for _ in range(2):
                await cage.runs_again()
            assert (1, 1) == (cage.right, cage.deciding.counted("canary_drifts_total"))

    scenario()
    ((level, message),) = lines(caplog)
    assert ("WARNING", True) == (level, message.startswith("the canary's answers moved by 0."))
    assert LARGEST_DRIFT < float(message.split()[5])


@simulated
async def test_answers_may_move_when_something_else_is_meant_to_read_them() -> None:
    async with caged() as cage:
        await asyncio.sleep(EVERY_S + SOON)
        fingerprint = (await cage.deciding.driver.decide(ASKED)).fingerprint
        cage.deciding.driver.use_policy(FittedPolicy("fitted", fingerprint, ByType.same(20.0)))
        await asyncio.sleep(EVERY_S + SOON)
        assert (2, 0) == (cage.runs("right"), cage.deciding.counted("canary_drifts_total"))


# When it asks


@simulated
async def test_without_traffic_it_asks_once_and_never_again() -> None:
    async with caged() as cage:
        await asyncio.sleep(100 * EVERY_S)
        assert 1 == len(cage.backend.batches)
        await cage.runs_again()
        await asyncio.sleep(100 * EVERY_S)
        assert 3 == len(cage.backend.batches), "its own decisions are no traffic"


@simulated
async def test_with_traffic_it_asks_every_minute() -> None:
    async with caged() as cage:
        for number in range(50):
            await asyncio.sleep(EVERY_S / 5)
            await cage.traffic(number)
        assert 9 <= cage.runs("right") <= 10


@simulated
async def test_a_relayed_chat_is_traffic_too() -> None:
    async with caged(backend=FakeBackend(logprob=sure, chat=True)) as cage:
        await asyncio.sleep(EVERY_S + SOON)
        async with cage.deciding.driver.chat(b"{}"):
            pass
        await asyncio.sleep(EVERY_S + SOON)
        assert 2 == cage.runs("right")


@simulated
async def test_when_the_engine_returns_it_asks_once_without_traffic() -> None:
    async with caged() as cage:
        await asyncio.sleep(10 * EVERY_S)
        cage.backend.lose("gone")
        await asyncio.sleep(10 * EVERY_S)
        assert 2 == cage.runs("right")


@simulated
async def test_it_does_not_ask_before_the_engine_is_ready_or_once_the_server_stops() -> None:
    backend = FakeBackend(logprob=sure)
    backend.step_s = 5 * EVERY_S
    async with caged(backend=backend) as cage:
        await asyncio.sleep(9 * EVERY_S)
        assert [] == backend.batches
        cage.readiness.drain()
        await asyncio.sleep(9 * EVERY_S)
        assert [] == backend.batches


@simulated
async def test_a_busy_engine_is_left_alone_until_it_is_idle() -> None:
    async with caged() as cage:
        async with cage.deciding.admission.permit(Weight(16, 1)):
            await asyncio.sleep(10 * EVERY_S)
            assert [] == cage.backend.batches
        await asyncio.sleep(SOON)
        assert 1 == cage.runs("right")


# What it costs


def test_it_stands_behind_all_others() -> None:
    ranks = [Lane(batch=batch).rank(extra=extra) for batch in (False, True) for extra in (False, True)]
    assert sorted(Rank) == [*ranks, Lane(idle=True).rank(extra=False)]
    assert Rank.IDLE == Lane(idle=True, batch=True).rank(extra=True)
    assert not DEFAULT_LANE.idle


@simulated
async def test_a_caller_waits_for_the_read_in_flight_and_for_no_other() -> None:
    """The engine reads one at a time, and the canary wants eight."""
    backend = FakeBackend(logprob=sure, delay_s=10)
    asked = query(state="a clear pump", samples=8, deadline_s=200)
    async with caged(backend=backend, asked=asked, capacity=Weight(64, 1)) as cage:
        while not backend.in_flight:
            await asyncio.sleep(0.5)
        await asyncio.sleep(15)  # into the second of its reads
        begun = now()
        await cage.deciding.driver.decide(query(samples=1, deadline_s=200))
        assert now() - begun <= 10 + 10, "its own read, and less than one before it"
        while not cage.runs("right"):
            await asyncio.sleep(0.5)
        prompts = [batch[0].prompt for batch in backend.batches]
        assert [2] == [place for place, prompt in enumerate(prompts) if prompt != prompts[0]]
        assert 9 == len(prompts), "and the canary lost none"


@simulated
async def test_a_caller_who_asks_just_the_same_does_not_wait_with_it() -> None:
    backend = FakeBackend(logprob=sure)
    backend.delays = {0: 7.5}
    async with caged(backend=backend) as cage:
        while not backend.in_flight:
            await asyncio.sleep(0.5)
        begun = now()
        outcome = await cage.deciding.driver.decide(ASKED)
        assert (False, begun) == (outcome.shared, now())
        await asyncio.sleep(10)
        assert (2, 1) == (len(backend.batches), cage.runs("right"))


@simulated
async def test_its_decisions_are_not_counted_among_those_of_callers() -> None:
    async with caged() as cage:
        await asyncio.sleep(EVERY_S + SOON)
        counted = cage.deciding.counted
        assert (1, 0) == (
            counted("reads_total", kind="first"),
            counted("decisions_total", extended="false"),
        )
        assert 0 == counted("answers_total", type="noul", status="decided")


# In a server


def of_a_server(caplog: pytest.LogCaptureFixture, **settings: Any) -> str:
    """Return the metrics of a server that has run for a while without any caller."""
    found = []

    @simulated
    async def scenario() -> None:
        backend = FakeBackend(logprob=unsure)
        service = assemble(
            Settings(upstream="http://engine", model="fake", **settings), ToyTokenizer(), backend
        )
        app = create_app(service)
        async with app.router.lifespan_context(app):
            await asyncio.sleep(1000)
        found.append(service.metrics.render().decode())

    with caplog.at_level(logging.INFO):
        scenario()
    return found[0]


def test_a_server_whose_model_is_no_judge_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = of_a_server(caplog, canary_s=5)
    assert "structured_server_canary_right 0.0" in metrics
    assert 'structured_server_canary_runs_total{outcome="wrong"} 1.0' in metrics
    ((level, message),) = lines(caplog)
    assert ("WARNING", True) == (level, message.startswith("the canary is answered wrongly: "))
    for secret in ("region", "DNS", "on-call", "networking"):
        assert secret not in caplog.text


def test_a_server_without_one_has_none(caplog: pytest.LogCaptureFixture) -> None:
    assert "canary_right" not in of_a_server(caplog, canary_s=0)
    assert [] == lines(caplog)
