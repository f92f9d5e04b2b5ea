"""Lines: ranks are served one before the other, and keys share within a rank whatever each of them does."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.admission import Lane, Rank, Weight
from structured_server.lines import Line
from tests.shell.crowd import ONE, crowd
from tests.shell.simulated_time import simulate, simulated

A, B = Lane("a"), Lane("b")


@simulated
async def test_what_somebody_waits_for_goes_before_batches_and_first_reads_before_extra_ones() -> None:
    async with crowd(reads=1) as people:
        people.comes("holder")
        await asyncio.sleep(0)
        for batch in (True, False):
            for extra in (True, False):
                for number in (1, 2):
                    name = f"{'batch ' if batch else ''}{'extra' if extra else 'first'} {number}"
                    people.comes(name, extra=extra, lane=Lane(batch=batch))
                    await asyncio.sleep(0)
        await asyncio.sleep(10)
    served = [f"{kind} {n}" for kind in ("first", "extra", "batch first", "batch extra") for n in (1, 2)]
    assert ["holder", *served] == people.log


def test_ranks_are_the_lines_in_their_order() -> None:
    lanes = [(batch, extra) for batch in (False, True) for extra in (False, True)]
    ranks = [Lane(batch=batch).rank(extra=extra) for batch, extra in lanes]
    assert list(Rank) == [*ranks, Lane(batch=True, idle=True).rank(extra=True)]


@simulated
async def test_a_key_that_asks_for_little_does_not_wait_behind_one_that_asks_for_much() -> None:
    async with crowd(reads=1) as people:
        people.comes("holder")
        await asyncio.sleep(0)
        for _ in range(6):
            people.comes("a", lane=A)
        await asyncio.sleep(0.1)
        for _ in range(2):
            people.comes("b", lane=B)
        await asyncio.sleep(20)
    assert list("ababaaaa") == people.log[1:]


@simulated
async def test_keys_share_canvas_positions_and_not_batches() -> None:
    async with crowd(positions=64, reads=4) as people:
        people.comes("holder", Weight(64, 1))
        await asyncio.sleep(0)
        for _ in range(3):
            people.comes("wide", Weight(64, 1), lane=A)
        for _ in range(12):
            people.comes("narrow", Weight(16, 1), lane=B)
        await asyncio.sleep(20)
    four = ["narrow"] * 4
    assert ["wide", *four, "wide", *four, "wide", *four] == people.log[1:]


@simulated
async def test_who_leaves_the_line_costs_its_key_nothing() -> None:
    async with crowd(reads=1) as people:
        people.comes("holder", seconds=2)
        await asyncio.sleep(0)
        leavers = [people.comes("gone", lane=A) for _ in range(30)]
        people.comes("b", lane=B)
        await asyncio.sleep(1)
        for leaver in leavers:
            leaver.cancel()
        await asyncio.wait(leavers)
        for _ in range(2):
            people.comes("a", lane=A)
            people.comes("b", lane=B)
        await asyncio.sleep(20)
    assert list("babab") == people.log[1:]


@simulated
async def test_a_key_that_was_away_has_saved_up_nothing() -> None:
    async with crowd(reads=1) as people:
        for _ in range(12):
            people.comes("a", lane=A)
        await asyncio.sleep(6.5)
        for _ in range(5):
            people.comes("b", lane=B)
        await asyncio.sleep(20)
    assert list("bababababa") == people.log[7:]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([16, 64, 256])), min_size=1, max_size=60),
    st.integers(0, 60),
)
def test_of_keys_that_wait_all_the_time_none_gets_more_than_two_batches_ahead(
    comers: list[tuple[str, int]], served: int
) -> None:
    """The bound that start-time fair queueing has: one largest batch of each."""

    async def scenario() -> None:
        line = Line()
        for key, positions in comers:
            line.join(Weight(positions, 1), key)
        had = {"a": 0, "b": 0}
        left = {key: [each for each, _ in comers].count(key) for key in "ab"}
        for _ in range(served):
            if not all(left.values()):
                return
            waiter = line.let_in()
            had[waiter.key] += waiter.weight.positions
            left[waiter.key] -= 1
            assert abs(had["a"] - had["b"]) <= 2 * 256

    simulate(scenario())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([16, 64])), max_size=30), st.data())
def test_what_stands_before_a_newcomer_is_what_is_let_in_before_it(
    comers: list[tuple[str, int]], data: st.DataObject
) -> None:
    async def scenario() -> None:
        line = Line()
        for index, (key, positions) in enumerate(comers):
            line.join(Weight(positions, 1), key)
            if index % 3 == 2 and data.draw(st.booleans()):
                line.let_in()
        key = data.draw(st.sampled_from("abcd"))
        expected, newcomer = line.before(key), line.join(ONE, key)
        found = Weight(0, 0)
        while (waiter := line.let_in()) is not newcomer:
            found += waiter.weight
        assert expected == found

    simulate(scenario())


@pytest.mark.parametrize("leaves", [False, True])
@simulated
async def test_an_empty_line_remembers_nobody(leaves: bool) -> None:
    line = Line()
    waiters = [line.join(Weight(64, 1), "a") for _ in range(3)]
    for waiter in waiters:
        if leaves:
            line.leave(waiter)
            line.leave(waiter)  # may be twice
        else:
            assert waiter is line.let_in()
    assert (0, Weight(0, 0), None) == (len(line), line.weight, line.head())
    first, second = line.join(ONE, "a"), line.join(ONE, "b")
    assert [first, second] == [line.let_in(), line.let_in()]


@simulated
async def test_one_who_was_cancelled_but_has_yet_to_leave_costs_its_key_nothing() -> None:
    line = Line()
    gone, next_one, other = line.join(ONE, "a"), line.join(ONE, "a"), line.join(ONE, "b")
    gone.granted.cancel()
    assert [gone, next_one, other] == [line.let_in() for _ in range(3)]
