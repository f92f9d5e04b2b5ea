"""Sharing: equal work in flight is done once, and never outlives those who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from structured_server.core.policy import ReadPolicy
from structured_server.errors import DeadlineExceeded, UpstreamFailed
from structured_server.sharing import Sharing
from tests.fake_backend import FakeBackend
from tests.shell.deciding import SCHEMA, Deciding, query, sure
from tests.shell.simulated_time import now, simulated


class Work:
    """Work of some seconds that counts how often it was begun, finished and cancelled."""

    def __init__(self, seconds: float = 1.0, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.begun = self.finished = self.cancelled = 0

    def __call__(self) -> Coroutine[None, None, int]:
        return self._do()

    async def _do(self) -> int:
        self.begun += 1
        number = self.begun
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        self.finished += 1
        return number


@simulated
async def test_equal_work_in_flight_is_done_once_and_all_but_the_first_are_told_so() -> None:
    sharing, work = Sharing[int](), Work()
    first = asyncio.create_task(sharing.do("a", work))
    await asyncio.sleep(0.5)
    second, third = (asyncio.create_task(sharing.do("a", work)) for _ in range(2))
    assert [(1, False), (1, True), (1, True)] == list(await asyncio.gather(first, second, third))
    assert (1, 1) == (work.begun, now())


@simulated
async def test_other_work_is_not_shared() -> None:
    sharing, work = Sharing[int](), Work()
    results = await asyncio.gather(*(sharing.do(about, work) for about in ("a", "b")))
    assert [(1, False), (2, False)] == results


@simulated
async def test_work_that_has_ended_is_not_shared_any_more() -> None:
    sharing, work = Sharing[int](), Work()
    assert [(1, False), (2, False)] == [await sharing.do("a", work) for _ in range(2)]


@simulated
async def test_an_error_reaches_all_who_wait_and_none_who_come_later() -> None:
    sharing, work = Sharing[int](), Work(error=UpstreamFailed("it broke."))
    results = await asyncio.gather(*(sharing.do("a", work) for _ in range(3)), return_exceptions=True)
    assert [work.error] * 3 == results
    work.error = None
    assert (2, False) == await sharing.do("a", work)


@pytest.mark.parametrize("leaver", [0, 1, 2])
@simulated
async def test_who_leaves_does_not_take_the_work_from_the_others(leaver: int) -> None:
    """Not even the one who began it."""
    sharing, work = Sharing[int](), Work()
    tasks = [asyncio.create_task(sharing.do("a", work)) for _ in range(3)]
    await asyncio.sleep(0.5)
    tasks.pop(leaver).cancel()
    assert [1, 1] == [result for result, _ in await asyncio.gather(*tasks)]
    assert (1, 0) == (work.begun, work.cancelled)


@simulated
async def test_work_is_cancelled_when_the_last_one_who_waits_leaves_and_has_ended_when_they_have() -> None:
    sharing, work = Sharing[int](), Work()
    tasks = [asyncio.create_task(sharing.do("a", work)) for _ in range(2)]
    for index, task in enumerate(tasks):
        await asyncio.sleep(0.25)
        task.cancel()
        await asyncio.wait([task])
        assert index == work.cancelled
    assert all(task.cancelled() for task in tasks)


@simulated
async def test_who_comes_while_abandoned_work_is_ending_begins_it_anew() -> None:
    sharing = Sharing[str]()

    async def slow_to_end() -> str:
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.sleep(1)
        return "old"

    async def quick() -> str:
        return "new"

    leaving = asyncio.create_task(sharing.do("a", slow_to_end))
    await asyncio.sleep(0.5)
    leaving.cancel()
    await asyncio.sleep(0.5)
    assert ("new", False) == await sharing.do("a", quick)
    assert not leaving.done()
    await asyncio.wait([leaving])


# Through the driver


@simulated
async def test_equal_queries_make_one_set_of_reads_and_the_second_says_that_it_shared() -> None:
    deciding = Deciding(FakeBackend(delay_s=1))
    first = asyncio.create_task(deciding.driver.decide(query()))
    await asyncio.sleep(0.5)
    second = asyncio.create_task(deciding.driver.decide(query()))
    lent, borrowed = await asyncio.gather(first, second)
    assert [1, 3] == [len(batch) for batch in deciding.backend.batches]
    assert (False, True) == (lent.shared, borrowed.shared)
    assert replace(lent, shared=True, total_ms=borrowed.total_ms) == borrowed
    assert deciding.idle


OTHERS = {
    "state": {"state": "a valve"},
    "seed": {"seed": 1},
    "samples": {"samples": 4},
    "threshold": {"policy": ReadPolicy(max_reads=9)},
    "layout": {"layout": "document_first"},
    "rotation": {"rotate": True},
    "questions": {"schema": replace(SCHEMA, questions=SCHEMA.questions[:2])},
    "order of the questions": {"schema": replace(SCHEMA, questions=SCHEMA.questions[::-1])},
    "what becomes of a long state": {"long_state": "head"},
    "deadline": {"deadline_s": 9.0},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
@simulated
async def test_a_query_that_differs_in_anything_is_read_by_itself(change: dict[str, object]) -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    one, other = await asyncio.gather(
        deciding.driver.decide(query()),
        deciding.driver.decide(query(**change)),  # type: ignore[arg-type]  # one of its fields
    )
    assert (False, False) == (one.shared, other.shared)
    assert 2 <= len(deciding.backend.batches)


@simulated
async def test_a_failure_is_everybodys_and_the_next_equal_query_is_read_again() -> None:
    backend = FakeBackend(logprob=sure, delay_s=1)
    backend.failures = dict.fromkeys((0, 1, 2), UpstreamFailed("it broke."))
    deciding = Deciding(backend)
    results = await asyncio.gather(
        *(deciding.driver.decide(query()) for _ in range(2)), return_exceptions=True
    )
    assert [UpstreamFailed] * 2 == [type(result) for result in results]
    assert 3 == deciding.counted("upstream_errors_total", kind="failed")
    assert not (await deciding.driver.decide(query())).shared


@simulated
async def test_who_joins_late_has_a_deadline_of_its_own() -> None:
    deciding = Deciding(FakeBackend(delay_s=100))
    first = asyncio.create_task(deciding.driver.decide(query(deadline_s=2)))
    await asyncio.sleep(1)
    second = asyncio.create_task(deciding.driver.decide(query(deadline_s=2)))
    with pytest.raises(DeadlineExceeded):
        await first
    assert 2 == now()
    with pytest.raises(DeadlineExceeded):
        await second
    assert pytest.approx(3, abs=0.01) == now()
    assert deciding.idle


@simulated
async def test_who_joined_reads_that_came_too_late_for_others_has_them_made_again_in_its_own_time() -> None:
    backend = FakeBackend(logprob=sure)
    backend.delays = {0: 100, 1: 0.5}
    deciding = Deciding(backend)
    first = asyncio.create_task(deciding.driver.decide(query(deadline_s=2)))
    await asyncio.sleep(1)
    second = asyncio.create_task(deciding.driver.decide(query(deadline_s=2)))
    with pytest.raises(DeadlineExceeded):
        await first
    assert (await second).decision.answers
    assert 2.5 == now()
    assert deciding.idle


@simulated
async def test_reads_go_on_for_one_of_two_callers_and_end_with_the_last() -> None:
    deciding = Deciding(FakeBackend(delay_s=100))
    tasks = [asyncio.create_task(deciding.driver.decide(query(deadline_s=300))) for _ in range(2)]
    await asyncio.sleep(1)
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    assert (1, 0) == (deciding.backend.in_flight, deciding.backend.cancelled)
    tasks[1].cancel()
    await asyncio.wait(tasks[1:])
    assert 1 == deciding.backend.cancelled
    assert deciding.idle
