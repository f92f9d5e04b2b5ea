"""Permits: in order of arrival, never more than there are, and none ever lost."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.admission import Admission, Lane, Weight
from structured_server.errors import Overloaded
from tests.shell.crowd import NOTHING, ONE, crowd
from tests.shell.simulated_time import now, simulate, simulated


@simulated
async def test_whoever_comes_first_is_served_first() -> None:
    async with crowd(reads=1) as people:
        tasks = [people.comes(name) for name in "abcde"]
        await asyncio.gather(*tasks)
        assert list("abcde") == people.log
        assert 5 == now()


@simulated
async def test_as_many_as_fit_run_at_once() -> None:
    async with crowd(reads=3) as people:
        await asyncio.gather(*(people.comes(name) for name in "abcdef"))
        assert 2 == now()


@pytest.mark.parametrize(
    ("weights", "at_once"),
    [
        ([Weight(16, 1)] * 9, 4),  # bounded by reads
        ([Weight(64, 1)] * 9, 2),  # bounded by positions
        ([Weight(64, 4), Weight(16, 1)], 1),  # no read left beside the first
        ([Weight(128, 1), Weight(16, 1)], 1),  # no position left beside the first
        ([Weight(112, 3), Weight(16, 1)], 2),  # exactly all of both
    ],
)
@simulated
async def test_permits_count_positions_and_reads(weights: Sequence[Weight], at_once: int) -> None:
    async with crowd(positions=128, reads=4) as people:
        for index, weight in enumerate(weights):
            people.comes(str(index), weight)
        await asyncio.sleep(0.5)
        assert at_once == len(people.log)
        inside = weights[:at_once]
        assert people.admission.in_use == Weight(
            sum(weight.positions for weight in inside), sum(weight.reads for weight in inside)
        )
        assert len(weights) - at_once == people.admission.waiting


@pytest.mark.parametrize("extra", [False, True])
@simulated
async def test_a_light_batch_does_not_overtake_a_heavy_one_that_waits(extra: bool) -> None:
    async with crowd(reads=4) as people:
        people.comes("holder", Weight(16, 3))
        people.comes("heavy", Weight(16, 4), extra=extra)
        people.comes("light", extra=extra)
        await asyncio.sleep(0.5)
        assert ["holder"] == people.log
        await asyncio.sleep(10)
        assert ["holder", "heavy", "light"] == people.log


@simulated
async def test_who_finds_the_line_full_is_refused_at_once_and_told_when_to_come_back() -> None:
    async with crowd(reads=1, max_waiting=2) as people:
        tasks = [people.comes(name) for name in "abc"]
        await asyncio.sleep(0.25)
        refused = people.comes("d")
        with pytest.raises(Overloaded) as caught:
            await refused
        assert 0.25 == now()
        assert "2 batches of reads are waiting already." == caught.value.message
        assert "queue_full" == caught.value.reason
        assert 1 == caught.value.retry_after_s
        await asyncio.gather(*tasks)
        assert list("abc") == people.log


@simulated
async def test_without_a_line_only_those_come_in_who_need_not_wait() -> None:
    async with crowd(reads=1, max_waiting=0) as people:
        first = people.comes("a")
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await people.comes("b")
        await first
        await people.comes("c")
        assert ["a", "c"] == people.log


@simulated
async def test_extra_reads_count_in_the_same_line() -> None:
    async with crowd(reads=1, max_waiting=2) as people:
        for name, extra in (("a", False), ("b", False), ("c", True)):
            people.comes(name, extra=extra)
        await asyncio.sleep(0)
        for extra in (True, False):
            with pytest.raises(Overloaded):
                await people.comes("late", extra=extra)


@simulated
async def test_extra_reads_never_go_before_first_reads() -> None:
    async with crowd(reads=1) as people:
        people.comes("holder")
        await asyncio.sleep(0)
        for name in ("x1", "x2"):
            people.comes(name, extra=True)
        await asyncio.sleep(0)
        for name in ("f1", "f2"):
            people.comes(name)
        await asyncio.sleep(1.5)
        people.comes("f3")
        await asyncio.sleep(10)
        assert ["holder", "f1", "f2", "f3", "x1", "x2"] == people.log


@simulated
async def test_a_first_read_that_fits_overtakes_extra_reads_that_wait() -> None:
    async with crowd(reads=2) as people:
        people.comes("holder", Weight(16, 1))
        await asyncio.sleep(0)
        people.comes("extra", Weight(32, 2), extra=True)
        await asyncio.sleep(0)
        people.comes("first", Weight(16, 1))
        await asyncio.sleep(0.5)
        assert ["holder", "first"] == people.log


@simulated
async def test_extra_reads_wait_while_a_first_read_waits_even_where_they_would_fit() -> None:
    async with crowd(reads=4) as people:
        people.comes("long", Weight(16, 2), seconds=2)
        people.comes("short", Weight(16, 1), seconds=1)
        people.comes("heavy", Weight(16, 3))
        people.comes("extra", Weight(16, 1), extra=True)
        for seconds in (0.5, 1):  # before and after the short one leaves
            await asyncio.sleep(seconds)
            assert ["long", "short"] == people.log
        await asyncio.sleep(10)
        assert ["long", "short", "heavy", "extra"] == people.log


@simulated
async def test_extra_reads_come_in_at_once_where_there_is_room() -> None:
    async with crowd(reads=2) as people:
        people.comes("first")
        people.comes("extra", extra=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ["first", "extra"] == people.log


@pytest.mark.parametrize("extra", [False, True])
@simulated
async def test_who_is_cancelled_in_line_leaves_it(extra: bool) -> None:
    async with crowd(reads=1) as people:
        people.comes("a")
        leaver, stayer = people.comes("b", extra=extra), people.comes("c", extra=extra)
        await asyncio.sleep(0.5)
        leaver.cancel()
        await asyncio.sleep(0)
        assert 1 == people.admission.waiting
        await stayer
        assert ["a", "c"] == people.log


@simulated
async def test_when_the_heavy_one_in_front_leaves_those_behind_come_in() -> None:
    async with crowd(reads=4) as people:
        people.comes("holder", Weight(16, 3), seconds=100)
        heavy, light = people.comes("heavy", Weight(16, 4)), people.comes("light")
        extra = people.comes("extra", extra=True)
        await asyncio.sleep(0.5)
        heavy.cancel()
        await asyncio.sleep(0.1)
        assert ["holder", "light"] == people.log
        await asyncio.gather(light, extra)
        assert ["holder", "light", "extra"] == people.log
        assert 2.5 == now()


@simulated
async def test_who_is_granted_and_cancelled_at_once_gives_the_permit_back() -> None:
    async with crowd(reads=1) as people:
        async with people.admission.permit(ONE):
            granted, next_one = people.comes("a"), people.comes("b")
            await asyncio.sleep(0.5)
        assert ONE == people.admission.in_use, "a has it, but has not run since"
        granted.cancel()
        await next_one
        assert ["b"] == people.log


@simulated
async def test_a_permit_is_not_given_to_one_who_was_cancelled_but_has_yet_to_notice() -> None:
    """Two requests run out of time in the same instant: one holds a permit, the other waits for it."""
    async with crowd(reads=1) as people:
        holder, waiter, next_one = people.comes("a"), people.comes("b"), people.comes("c")
        await asyncio.sleep(0.5)
        holder.cancel()
        waiter.cancel()
        results = await asyncio.gather(holder, waiter, return_exceptions=True)
        assert [asyncio.CancelledError] * 2 == [type(result) for result in results]
        await next_one
        assert ["a", "c"] == people.log


@simulated
async def test_an_error_under_a_permit_gives_it_back_and_comes_out_unchanged() -> None:
    async with crowd(reads=1) as people:
        with pytest.raises(ZeroDivisionError):
            async with people.admission.permit(ONE):
                raise ZeroDivisionError
        assert NOTHING == people.admission.in_use


@simulated
async def test_a_batch_larger_than_everything_goes_in_alone() -> None:
    """There may have been more when it was made."""
    async with crowd(positions=64, reads=4) as people:
        people.comes("before")
        people.comes("too wide", Weight(80, 1))
        people.comes("behind")
        await asyncio.sleep(0.5)
        assert ["before"] == people.log
        await asyncio.sleep(1)
        assert ["before", "too wide"] == people.log
        await asyncio.sleep(1)
        assert ["before", "too wide", "behind"] == people.log


# Nothing leaks, whatever happens


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who comes at a time, wants a permit for a while, and may be cancelled at a time."""

    comes_at: int
    weight: Weight
    extra: bool
    lane: Lane
    stays: int
    fails: bool
    cancelled_at: int | None
    late_by: int  # turns of the event loop


visitors = st.builds(
    Visitor,
    comes_at=st.integers(0, 12),
    weight=st.builds(Weight, st.sampled_from([16, 32, 64, 128]), st.integers(1, 4)),
    extra=st.booleans(),
    lane=st.builds(Lane, st.sampled_from(["", "a", "b"]), st.booleans()),
    stays=st.integers(0, 4),
    fails=st.booleans(),
    cancelled_at=st.none() | st.integers(0, 16),
    late_by=st.integers(0, 3),
)


@given(st.lists(visitors, max_size=24), st.integers(0, 8), st.sampled_from([1.0, 3.0, math.inf]))
def test_permits_never_exceed_the_capacity_and_all_come_back(
    people: list[Visitor], max_waiting: int, max_wait_s: float
) -> None:
    """In whole seconds, so that many things happen in the same instant, in any order."""
    admission = Admission(Weight(128, 4), max_waiting=max_waiting, max_wait_s=max_wait_s)
    inside: list[Visitor] = []
    came_in: dict[Lane, list[tuple[int, float]]] = defaultdict(list)  # first reads: number of arrival, when
    arrivals = count()

    async def visit(visitor: Visitor) -> None:
        await asyncio.sleep(visitor.comes_at)
        number = next(arrivals)
        try:
            async with admission.permit(visitor.weight, extra=visitor.extra, lane=visitor.lane):
                inside.append(visitor)
                if not visitor.extra:
                    came_in[visitor.lane].append((number, now()))
                taken = [each.weight for each in inside]
                assert sum(weight.positions for weight in taken) <= 128
                assert sum(weight.reads for weight in taken) <= 4
                try:
                    await asyncio.sleep(visitor.stays)
                    if visitor.fails:
                        raise ZeroDivisionError
                finally:
                    inside.remove(visitor)
        finally:
            assert 0 <= admission.waiting <= max_waiting

    async def cancel(visitor: Visitor, task: asyncio.Task[None]) -> None:
        if visitor.cancelled_at is not None:
            await asyncio.sleep(visitor.cancelled_at)
            for _ in range(visitor.late_by):
                await asyncio.sleep(0)
            task.cancel()

    async def scenario() -> None:
        tasks = [asyncio.create_task(visit(visitor)) for visitor in people]
        cancels = [cancel(visitor, task) for visitor, task in zip(people, tasks, strict=True)]
        async with asyncio.timeout(1000):
            results = (await asyncio.gather(*tasks, *cancels, return_exceptions=True))[: len(tasks)]
        allowed = (type(None), Overloaded, ZeroDivisionError, asyncio.CancelledError)
        assert [] == [result for result in results if not isinstance(result, allowed)]
        assert (NOTHING, 0) == (admission.in_use, admission.waiting)
        for first in came_in.values():
            times = [at for _, at in sorted(first)]
            assert sorted(times) == times, "first reads of one lane come in by order of arrival"

    simulate(scenario())
