"""The number of requests under way follows what the server says."""

from __future__ import annotations

import asyncio

from structured_server.bulk.pace import Pace


async def test_it_rises_by_one_a_round_up_to_the_most() -> None:
    pace = Pace(8, start=2)
    for _ in range(2):
        pace.good()
    assert 2.8 < pace.limit <= 3
    for _ in range(200):
        pace.good()
    assert 8 == pace.limit


async def test_refusals_to_what_was_sent_together_halve_it_once() -> None:
    pace = Pace(16, start=16)
    entered = [await pace.enter() for _ in range(16)]
    for each in entered:
        pace.busy(each, 0.0)
        pace.leave()
        await asyncio.sleep(0.001)
    assert 8 == pace.limit
    later = await pace.enter()
    pace.busy(later, 0.0)
    assert 4 == pace.limit


async def test_it_never_falls_below_one() -> None:
    pace = Pace(4)
    for _ in range(9):
        entered = await pace.enter()
        pace.busy(entered, 0.0)
        pace.leave()
        await asyncio.sleep(0.001)
    assert 1 == pace.limit


async def test_nobody_enters_before_the_pause_is_over_or_beyond_the_limit() -> None:
    pace = Pace(2, start=2)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    pace.busy(await pace.enter(), 0.2)
    pace.leave()
    assert await pace.enter() - begun >= 0.2
    second = asyncio.create_task(pace.enter())
    await asyncio.sleep(0.02)
    assert not second.done(), "the limit is 1 now"
    pace.leave()
    await asyncio.wait_for(second, 1)


async def test_a_place_is_not_lost_when_who_waits_for_it_gives_up() -> None:
    pace = Pace(1)
    await pace.enter()
    first, second = (asyncio.create_task(pace.enter()) for _ in range(2))
    await asyncio.sleep(0)
    pace.leave()  # it is the first's turn, which does not know yet
    first.cancel()
    await asyncio.wait_for(second, 1)
