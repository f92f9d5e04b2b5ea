"""Extra reads: they make an uncertain answer better, and never worse, later or a failure."""

from __future__ import annotations

import asyncio

import pytest

from structured_server.admission import Weight
from structured_server.core.reads import ReadRequest
from structured_server.driver import Outcome
from structured_server.errors import (
    DeadlineExceeded,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, answers_of, query, sure, unsure
from tests.shell.simulated_time import now, simulated


def reason(outcome: Outcome) -> str:
    """Return why the extra reads were skipped; there must be one warning, which says so, and one draw."""
    (warning,) = outcome.decision.warnings
    assert "extra_reads_skipped" == warning.code
    assert {1} == {answer.draws for answer in answers_of(outcome).values()}
    assert 1 == len(outcome.decision.reads)
    return warning.message.removeprefix("The answer rests on one draw: ")


@simulated
async def test_a_sure_answer_is_read_once() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    outcome = await deciding.driver.decide(query())
    assert [1] == [len(batch) for batch in deciding.backend.batches]
    assert () == outcome.decision.extended_by
    assert 1 == deciding.counted("decisions_total", extended="false")


@simulated
async def test_an_unsure_answer_is_read_three_more_times_at_once() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure, delay_s=1))
    outcome = await deciding.driver.decide(query())
    assert [1, 3] == [len(batch) for batch in deciding.backend.batches]
    assert 2 == now()
    assert ("urgent", "team", "known") == outcome.decision.extended_by
    assert 4 == answers_of(outcome)["urgent"].draws
    assert () == outcome.decision.warnings
    assert 1 == deciding.counted("decisions_total", extended="true")
    assert 1 == deciding.counted("batch_seconds_sum", kind="extra")


@pytest.mark.parametrize(
    "error",
    [
        UpstreamFailed("it broke."),
        UpstreamRejected("it broke."),
        UpstreamTimeout("it broke."),
        UpstreamUnreachable("it broke."),
    ],
)
@simulated
async def test_extra_reads_that_fail_leave_the_first_answer_with_a_warning(error: UpstreamError) -> None:
    backend = FakeBackend(logprob=unsure)
    backend.failures = {1: error}
    deciding = Deciding(backend)
    assert "more reads failed: it broke." == reason(await deciding.driver.decide(query()))
    assert 1 == deciding.counted("upstream_errors_total", kind=error.kind)
    assert 1 == deciding.counted("skipped_extra_reads_total")
    assert 0 == deciding.counted("reads_total", kind="extra")
    assert deciding.idle


@simulated
async def test_extra_reads_that_make_no_sense_leave_the_first_answer_with_a_warning() -> None:
    seen: dict[tuple[int, ...], int] = {}

    def nonsense_later(request: ReadRequest, _token_id: int, _position: int) -> float:
        draw = seen.setdefault(request.canvas, len(seen))
        return -3.0 if draw == 0 else float("nan")

    deciding = Deciding(FakeBackend(logprob=nonsense_later))
    assert reason(await deciding.driver.decide(query())).startswith("more reads failed: position ")


@simulated
async def test_the_answer_with_skipped_reads_is_that_of_one_sample() -> None:
    backend = FakeBackend()
    backend.failures = {1: UpstreamFailed("it broke.")}
    skipped = await Deciding(backend).driver.decide(query())
    single = await Deciding().driver.decide(query(samples=1))
    assert single.decision.answers == skipped.decision.answers


@simulated
async def test_extra_reads_that_miss_the_deadline_are_given_up_in_time_to_answer() -> None:
    backend = FakeBackend(logprob=unsure)
    backend.delays = {0: 1, 1: 100}
    deciding = Deciding(backend)
    outcome = await deciding.driver.decide(query(deadline_s=8))
    assert "more reads missed the deadline." == reason(outcome)
    assert 7.9 < now() < 8
    assert 1 == backend.cancelled
    assert deciding.idle


@pytest.mark.parametrize(("first_s", "sent"), [(3.9, True), (4.1, False)])
@simulated
async def test_extra_reads_that_would_miss_the_deadline_are_not_sent(first_s: float, sent: bool) -> None:
    """What a batch takes is judged by the one before it."""
    backend = FakeBackend(logprob=unsure)
    backend.delays = {0: first_s, 1: 0.1}
    outcome = await Deciding(backend).driver.decide(query(deadline_s=8))
    if sent:
        assert 4 == answers_of(outcome)["urgent"].draws
    else:
        assert "more reads would have missed the deadline." == reason(outcome)
        assert first_s == now()


@simulated
async def test_extra_reads_that_find_the_queue_full_are_given_up() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure, delay_s=1), capacity=Weight(64, 1))
    uncertain = asyncio.create_task(deciding.driver.decide(query()))
    await asyncio.sleep(0.5)
    others = [asyncio.create_task(deciding.driver.decide(query(samples=1, seed=seed))) for seed in (1, 2)]
    await asyncio.sleep(0.1)
    deciding.admission.max_waiting = 1  # one of the others, once the first read is done
    assert "the queue for more reads was too long." == reason(await uncertain)
    assert 1 == now()
    await asyncio.gather(*others)
    assert deciding.idle


@simulated
async def test_extra_reads_that_wait_let_the_first_reads_of_later_decisions_go_ahead() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure, delay_s=1), capacity=Weight(64, 1))
    uncertain = asyncio.create_task(deciding.driver.decide(query(deadline_s=60)))
    await asyncio.sleep(1.5)  # the first read is done, one extra read runs, two wait
    await deciding.driver.decide(query(state="another", samples=1))
    assert 3 == now()
    await uncertain
    assert 5 == now()
    prompts = [batch[0].prompt for batch in deciding.backend.batches]
    assert [0, 0, 1, 0, 0] == [int(prompt != prompts[0]) for prompt in prompts]


@simulated
async def test_extra_reads_that_wait_too_long_in_line_are_given_up() -> None:
    backend = FakeBackend(logprob=unsure)
    deciding = Deciding(backend, capacity=Weight(64, 1))
    backend.delays = {0: 1, 1: 100}
    answering = asyncio.create_task(deciding.driver.decide(query(deadline_s=8)))
    await asyncio.sleep(0.5)
    other = asyncio.create_task(deciding.driver.decide(query(samples=1, deadline_s=300)))
    outcome = await answering
    assert "more reads missed the deadline." == reason(outcome)
    assert not other.done()
    await other
    assert deciding.idle


@simulated
async def test_a_bug_in_extra_reads_is_not_hidden_behind_a_warning() -> None:
    backend = FakeBackend(logprob=unsure)
    backend.failures = {1: ZeroDivisionError()}
    deciding = Deciding(backend)
    with pytest.raises(ZeroDivisionError):
        await deciding.driver.decide(query())
    assert deciding.idle


@simulated
async def test_a_first_read_that_takes_all_the_time_leaves_none_for_more() -> None:
    backend = FakeBackend(logprob=unsure)
    backend.delays = {0: 8}
    deciding = Deciding(backend)
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(deadline_s=8))
    assert deciding.idle
