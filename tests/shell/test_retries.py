"""Retries: twice, elsewhere where there is an elsewhere, and only while there is time for another attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from structured_server.admission import Weight
from structured_server.backends import Engine
from structured_server.core.reads import Read, ReadRequest
from structured_server.errors import (
    DeadlineExceeded,
    InvalidRequest,
    UpstreamError,
    UpstreamFailed,
    UpstreamProtocolError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from structured_server.performer import RETRY_S
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, answers_of, query, sure, unsure
from tests.shell.simulated_time import now, simulated
from tests.toy import ToyTokenizer

DEADLINE_S = 10.0
PASSING = [UpstreamFailed, UpstreamTimeout, UpstreamUnreachable, UpstreamProtocolError]


class Pair(FakeBackend):
    """Two engines: this one, where every decision begins, and another."""

    def __init__(self, other: FakeBackend) -> None:
        super().__init__(logprob=other.logprob, generation=True)
        self.other = other
        self.waited_in_vain = 0
        self.there_is_another = True

    def route(self, _key: bytes, *, avoid: Engine | None = None) -> FakeBackend:  # type: ignore[override]
        """Return the other one where this one is to be avoided."""
        if avoid is self and self.there_is_another:
            return self.other
        return self

    def given_up(self) -> None:
        """Remember it."""
        self.waited_in_vain += 1


@pytest.fixture
def pair() -> Pair:
    """Two engines that are sure of themselves."""
    return Pair(FakeBackend(logprob=sure, generation=True))


def broken(*numbers: int, kind: type[Exception] = UpstreamFailed) -> dict[int, Exception]:
    """Return the failures of these batches."""
    return {number: kind("it broke.") for number in numbers}


# One engine


@pytest.mark.parametrize("kind", PASSING)
@simulated
async def test_a_first_read_that_failed_is_made_again_with_the_same_bytes(kind: type[UpstreamError]) -> None:
    backend = FakeBackend(logprob=sure, delay_s=1)
    backend.failures = broken(0, kind=kind)
    deciding = Deciding(backend)
    outcome = await deciding.driver.decide(query(deadline_s=DEADLINE_S))
    assert 0 == answers_of(outcome)["urgent"].option
    assert backend.batches[0] == backend.batches[1]
    assert (2, 2) == (len(backend.batches), now())
    assert 1 == deciding.counted("retries_total")
    assert 1 == deciding.counted("upstream_errors_total", kind=kind.kind)
    assert deciding.idle


@simulated
async def test_it_is_made_again_only_twice() -> None:
    backend = FakeBackend(logprob=sure)
    backend.failures = broken(0, 1) | broken(2, kind=UpstreamTimeout)
    deciding = Deciding(backend)
    with pytest.raises(UpstreamTimeout):
        await deciding.driver.decide(query())
    assert (3, 2) == (len(backend.batches), deciding.counted("retries_total"))
    assert deciding.idle


@pytest.mark.parametrize(("failed_after_s", "again"), [(5.9, True), (6.1, False)])
@simulated
async def test_it_is_made_again_while_two_fifths_of_the_deadline_are_left(
    failed_after_s: float, again: bool
) -> None:
    backend = FakeBackend(logprob=sure)
    backend.delays, backend.failures = {0: failed_after_s}, broken(0)
    deciding = Deciding(backend)
    asked = deciding.driver.decide(query(deadline_s=DEADLINE_S))
    if again:
        assert (await asked).decision.answers
    else:
        with pytest.raises(UpstreamFailed):
            await asked
    assert (1 + again, float(again)) == (len(backend.batches), deciding.counted("retries_total"))


@simulated
async def test_the_time_in_the_queue_counts() -> None:
    backend = FakeBackend(logprob=sure, delay_s=1)
    backend.failures = broken(1)
    deciding = Deciding(backend, capacity=Weight(64, 1))
    deciding.backend.delays = {0: 5.5}
    first = asyncio.create_task(deciding.driver.decide(query(deadline_s=60)))
    await asyncio.sleep(0)
    with pytest.raises(UpstreamFailed):
        await deciding.driver.decide(query(seed=1, deadline_s=DEADLINE_S))
    await first
    assert 2 == len(backend.batches)


@pytest.mark.parametrize("error", [UpstreamRejected, InvalidRequest])
@simulated
async def test_what_an_engine_refuses_it_is_not_asked_again(error: type[Exception]) -> None:
    backend = FakeBackend(logprob=sure)
    backend.failures = broken(0, kind=error)
    deciding = Deciding(backend)
    with pytest.raises(error):
        await deciding.driver.decide(query())
    assert 1 == len(backend.batches)
    assert deciding.idle


@simulated
async def test_another_attempt_is_waited_for_no_longer_than_its_time() -> None:
    backend = FakeBackend(logprob=sure)
    backend.delays, backend.failures = {0: 1, 1: 100, 2: 100}, broken(0)
    deciding = Deciding(backend)
    with pytest.raises(UpstreamTimeout, match=r"did not answer within 3\.0 s"):
        await deciding.driver.decide(query(deadline_s=DEADLINE_S))
    assert 1 + 2 * RETRY_S == now()
    assert 2 == backend.cancelled
    assert deciding.idle


@simulated
async def test_a_second_attempt_that_the_deadline_ends_is_told_so() -> None:
    backend = FakeBackend(logprob=sure)
    backend.delays, backend.failures = {0: 1, 1: 100}, broken(0)
    deciding = Deciding(backend)
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(deadline_s=2))
    assert 2 == now()
    assert deciding.idle


@simulated
async def test_extra_reads_are_never_made_again() -> None:
    backend = FakeBackend(logprob=unsure)
    backend.failures = broken(1)
    deciding = Deciding(backend)
    outcome = await deciding.driver.decide(query())
    assert [1, 3] == [len(batch) for batch in backend.batches]
    assert 1 == answers_of(outcome)["urgent"].draws
    assert 0 == deciding.counted("retries_total")


@simulated
async def test_a_thought_that_failed_is_written_again() -> None:
    class Stumbling(FakeBackend):
        async def generate(self, *asked: object) -> object:  # type: ignore[override]
            self.generation_failure = UpstreamFailed("it broke.") if not self.generated else None
            return await super().generate(*asked)  # type: ignore[arg-type]

    backend = Stumbling(logprob=sure, generation=True)
    deciding = Deciding(backend, tokenizer=ToyTokenizer(scaffold=True))
    assert (await deciding.driver.decide(query(think=5))).decision.answers
    assert backend.generated[0] == backend.generated[1]
    assert 1 == deciding.counted("retries_total")
    assert deciding.idle


@simulated
async def test_a_permit_is_held_over_both_attempts_and_then_given_back() -> None:
    backend = FakeBackend(logprob=sure, delay_s=1)
    backend.failures = broken(0)
    deciding = Deciding(backend, capacity=Weight(64, 1))
    going = asyncio.create_task(deciding.driver.decide(query()))
    for _ in range(2):
        await asyncio.sleep(0.9)
        assert 1 == deciding.admission.in_use.reads
    await going
    assert deciding.idle


@simulated
async def test_of_reads_that_are_requests_of_their_own_only_the_failed_one_is_made_again() -> None:
    backend = FakeBackend(logprob=sure, separate=True)
    backend.failures = broken(1, 3)
    deciding = Deciding(backend)
    outcome = await deciding.driver.decide(query(samples=3))
    assert 3 == answers_of(outcome)["urgent"].draws
    assert [1] * 5 == [len(batch) for batch in backend.batches]
    assert 3 == len(set(backend.batches))
    assert backend.batches[1] == backend.batches[3] == backend.batches[4]
    assert 2 == deciding.counted("retries_total")


@simulated
async def test_where_reads_share_a_pass_all_of_them_are_made_again() -> None:
    backend = FakeBackend(logprob=sure)
    backend.failures = broken(0)
    await Deciding(backend).driver.decide(query(samples=3))
    assert [3, 3] == [len(batch) for batch in backend.batches]


# Two engines


@pytest.mark.parametrize("kind", [*PASSING, UpstreamRejected])
@simulated
async def test_where_there_is_another_engine_it_is_asked_whatever_the_first_one_said(
    pair: Pair, kind: type[UpstreamError]
) -> None:
    pair.failures = broken(0, kind=kind)
    deciding = Deciding(pair)
    assert (await deciding.driver.decide(query())).decision.answers
    assert pair.batches == pair.other.batches
    assert 1 == deciding.counted("retries_total")


@simulated
async def test_an_engine_that_says_nothing_is_left_while_there_is_time_for_the_other(pair: Pair) -> None:
    pair.delays = {0: 100}
    deciding = Deciding(pair)
    assert (await deciding.driver.decide(query(deadline_s=DEADLINE_S))).decision.answers
    assert 3 == now(), "half of three fifths of the deadline: there are two more attempts"
    assert (1, 1) == (pair.cancelled, pair.waited_in_vain)
    assert 1 == deciding.counted("upstream_errors_total", kind="timeout")
    assert deciding.idle


@simulated
async def test_an_engine_that_says_nothing_is_waited_for_where_there_is_no_other(pair: Pair) -> None:
    pair.there_is_another = False
    pair.delays = {0: 9}
    assert (await Deciding(pair).driver.decide(query(deadline_s=DEADLINE_S))).decision.answers
    assert (9, 0) == (now(), pair.waited_in_vain)


@simulated
async def test_a_thought_may_take_as_long_as_it_takes(pair: Pair) -> None:
    pair.delay_s = 8
    pair.delays = {0: 1}
    deciding = Deciding(pair, tokenizer=ToyTokenizer(scaffold=True))
    assert (await deciding.driver.decide(query(think=5, deadline_s=DEADLINE_S))).decision.answers
    assert (9, 0) == (now(), pair.waited_in_vain)


@simulated
async def test_the_reads_that_follow_stay_with_the_engine_that_answered() -> None:
    pair = Pair(FakeBackend(logprob=unsure))
    pair.failures = broken(0)
    await Deciding(pair).driver.decide(query())
    assert ([1], [1, 3]) == (
        [len(batch) for batch in pair.batches],
        [len(batch) for batch in pair.other.batches],
    )


@simulated
async def test_reads_that_fail_together_move_together() -> None:
    """The first one that fails moves the decision; the others follow it and do not move it again."""

    class Third(Pair):
        moves = 0

        def route(self, _key: bytes, *, avoid: Engine | None = None) -> FakeBackend:  # type: ignore[override]
            """Count how often another one is chosen after a failure."""
            if avoid is self and len(self.batches) == 3:
                self.moves += 1
                return self.other if self.moves == 1 else FakeBackend()
            return super().route(_key, avoid=avoid)

    class Failing(Third):
        async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
            await super().read(batch)
            raise UpstreamFailed("it broke.")

    pair = Failing(FakeBackend(logprob=sure))
    pair.delay_s = 1
    await Deciding(pair).driver.decide(query(isolate="all"))
    assert (3, 3) == (len(pair.batches), len(pair.other.batches))


@simulated
async def test_where_the_other_engine_is_lost_meanwhile_the_first_ones_error_counts() -> None:
    class Lost(Pair):
        def route(self, _key: bytes, *, avoid: Engine | None = None) -> FakeBackend:  # type: ignore[override]
            """Have none once a read has failed."""
            if avoid is not None and self.batches:
                raise UpstreamUnreachable("no engine is ready.")
            return super().route(_key, avoid=avoid)

    lost = Lost(FakeBackend())
    lost.failures = broken(0, 1, 2)
    deciding = Deciding(lost)
    with pytest.raises(UpstreamFailed, match="it broke"):
        await deciding.driver.decide(query())
    assert deciding.idle
