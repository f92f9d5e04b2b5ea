"""How long the queue is: estimated before anybody stands in it, and held within what is allowed."""

from __future__ import annotations

import asyncio
import random

import pytest

from structured_server.admission import Admission, Lane, Weight
from structured_server.errors import DeadlineExceeded, Overloaded
from tests.fake_backend import FakeBackend
from tests.shell.crowd import ONE, Crowd, crowd
from tests.shell.deciding import Deciding, query, sure
from tests.shell.simulated_time import now, simulated
from tests.toy import ToyTokenizer

ENGINE = Weight(1024, 16)
READ = Weight(64, 1)
HELD_S = 0.05
CAPACITY = ENGINE.reads / HELD_S  # reads a second


async def known(people: Crowd, *, seconds: float = 1.0) -> None:
    """Let the admission learn how long permits are held."""
    await people.comes("taught", seconds=seconds)
    people.log.clear()


# Estimates


@simulated
async def test_nothing_is_estimated_before_a_permit_was_held_or_where_there_is_room() -> None:
    async with crowd(reads=2) as people:
        for name in "ab":
            people.comes(name)
        await asyncio.sleep(0.5)
        assert 0 == people.admission.estimated_wait_s(ONE), "nobody knows yet"
        await asyncio.sleep(1)
        assert 0 == people.admission.estimated_wait_s(ONE), "it fits"


@simulated
async def test_the_estimate_counts_what_stands_before_and_what_is_lacking_itself() -> None:
    async with crowd(positions=64, reads=4) as people:
        await known(people, seconds=2)
        people.comes("inside", Weight(64, 1), seconds=2)
        await asyncio.sleep(0)
        assert 0.5 == people.admission.estimated_wait_s(Weight(16, 1))
        assert 2 == people.admission.estimated_wait_s(Weight(64, 1))
        people.comes("waits", Weight(32, 1), seconds=2)
        await asyncio.sleep(0)
        assert 1.5 == people.admission.estimated_wait_s(Weight(16, 1))
        assert 3.0 == people.admission.estimated_wait_s(Weight(16, 8)), "reads are scarcer here"


@simulated
async def test_the_estimate_is_that_of_ones_own_lane() -> None:
    async with crowd(reads=1) as people:
        await known(people)
        people.comes("inside")
        await asyncio.sleep(0)
        for name, extra, lane in (
            ("first", False, Lane("a")),
            ("another", False, Lane("a")),
            ("extra", True, Lane("a")),
            ("batch", False, Lane("a", batch=True)),
        ):
            people.comes(name, extra=extra, lane=lane)
        await asyncio.sleep(0)
        wait_s = people.admission.estimated_wait_s
        assert (3, 4, 5, 5) == tuple(
            wait_s(ONE, extra=extra, lane=Lane("a", batch))
            for batch in (False, True)
            for extra in (False, True)
        )
        assert 2 == wait_s(ONE, lane=Lane("b")), "it goes in after the first of the other key"


@simulated
async def test_how_long_permits_are_held_is_learned_anew_when_it_changes() -> None:
    async with crowd(reads=1) as people:
        await known(people, seconds=8)
        for _ in range(60):
            await people.comes("quick", seconds=0.1)
        people.comes("inside", seconds=0.1)
        await asyncio.sleep(0)
        assert pytest.approx(0.1, rel=0.3) == people.admission.estimated_wait_s(ONE)


@simulated
async def test_what_writes_takes_room_and_does_not_tell_how_long_reads_take() -> None:
    async with crowd(positions=256, reads=4) as people:
        await known(people)

        async def write() -> None:
            async with people.admission.permit(READ, writes=True):
                await asyncio.sleep(60)

        writing = [asyncio.create_task(write()) for _ in range(3)]
        people.comes("inside", READ)
        await asyncio.sleep(0)
        assert 1 == people.admission.estimated_wait_s(READ), "one read's room is left, for a second each"
        await asyncio.gather(*writing)
        inside = [people.comes("inside", READ) for _ in range(4)]
        await asyncio.sleep(0)
        assert 0.25 == people.admission.estimated_wait_s(READ)
        await asyncio.gather(*inside)


# What would wait too long


@simulated
async def test_who_would_wait_too_long_is_refused_with_the_figure_and_when_to_come_back() -> None:
    async with crowd(reads=1, max_wait_s=4) as people:
        await known(people)
        tasks = [people.comes(name) for name in "abcd"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inside = people.comes("e")
        refused = people.comes("f")
        with pytest.raises(Overloaded) as caught:
            await refused
        assert "16 canvas positions would wait for about 5.0 s; 4.0 s are allowed." == caught.value.message
        assert ("long_wait", 3) == (caught.value.reason, caught.value.retry_after_s)
        assert 1 == now(), "at once"
        await asyncio.gather(*tasks, inside)
        assert list("abcde") == people.log


@simulated
async def test_what_has_begun_is_not_refused_for_its_wait() -> None:
    async with crowd(reads=1, max_wait_s=2) as people:
        await known(people)
        for _ in range(3):
            people.comes("a")
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await people.comes("b")
        async with people.admission.permit(ONE, begun=True):
            assert 4 == now()


@simulated
async def test_what_is_more_than_an_engine_can_do_at_once_takes_turns_each_of_which_waits() -> None:
    """32 draws of four groups: served where nobody waits, refused by their weight where many do."""
    wide = Weight(32 * 4 * 64, 32 * 4)
    async with crowd(ENGINE.positions, ENGINE.reads, max_wait_s=2) as people:
        await known(people, seconds=0.5)
        people.admission.expect(wide)
        for _ in range(16 + 8):
            people.comes("a", READ, seconds=0.5)
        await asyncio.sleep(0)
        people.admission.expect(READ)
        with pytest.raises(Overloaded) as caught:
            people.admission.expect(wide)
        said = "8192 canvas positions would wait for about 6.0 s; 2.0 s are allowed."
        assert said == caught.value.message, "eight turns of 0.75 s"
        assert "take fewer samples" in (caught.value.hint or "")


@simulated
async def test_what_would_wait_past_its_deadline_is_refused_too() -> None:
    async with crowd(reads=1, max_wait_s=2) as people:
        await known(people)
        people.comes("a")
        await asyncio.sleep(0)
        people.admission.expect(ONE, left_s=1.5)
        with pytest.raises(Overloaded, match=r"for about 1\.0 s; 0\.5 s are allowed"):
            people.admission.expect(ONE, left_s=0.5)


# As many engines as are ready


@simulated
async def test_with_more_engines_more_go_in_and_with_fewer_those_inside_may_finish() -> None:
    async with crowd(reads=2) as people:
        for number in range(8):
            people.comes(str(number), seconds=2)
        await asyncio.sleep(1)
        assert 2 == len(people.log)
        people.admission.resize(3)
        await asyncio.sleep(0.5)
        assert (6, 2) == (len(people.log), people.admission.waiting)
        assert Weight(3 * 1024, 6) == people.admission.capacity
        people.admission.resize(1)
        await asyncio.sleep(1)  # two of the six have left
        assert (6, Weight(64, 4)) == (len(people.log), people.admission.in_use)
        await asyncio.sleep(1)
        assert 8 == len(people.log)


@simulated
async def test_there_is_never_less_than_one_engine() -> None:
    """Requests are refused elsewhere then, and a line that nobody may leave would hold them."""
    admission = Admission(ENGINE, max_waiting=1)
    admission.resize(0)
    assert ENGINE == admission.capacity


# Decisions


@simulated
async def test_a_decision_that_would_wait_too_long_is_refused_before_anything_is_spent_on_it() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), max_wait_s=2)
    await deciding.driver.decide(query(samples=1))
    going = [asyncio.create_task(deciding.driver.decide(query(samples=16, seed=seed))) for seed in range(3)]
    await asyncio.sleep(0.5)
    with pytest.raises(Overloaded, match="canvas positions would wait for about"):
        await deciding.driver.decide(query(samples=32, seed=7))
    assert 1.5 == now()
    assert 1 == deciding.counted("shed_total", reason="long_wait")
    await asyncio.gather(*going)
    assert (await deciding.driver.decide(query(samples=32, seed=7))).decision.answers, "idle again"
    assert deciding.idle


@simulated
async def test_a_decision_that_has_begun_is_not_refused_at_a_later_piece() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, widths=[64], delay_s=1), capacity=Weight(64, 1))
    await deciding.driver.decide(query(samples=1))
    long = asyncio.create_task(deciding.driver.decide(query(samples=3, seed=1, deadline_s=60)))
    await asyncio.sleep(0.5)
    others = [
        asyncio.create_task(deciding.driver.decide(query(samples=1, seed=seed, deadline_s=60)))
        for seed in (2, 3)
    ]
    await asyncio.sleep(0.1)
    deciding.admission.max_wait_s = 0.5
    await asyncio.gather(long, *others)
    assert 6 == now()
    assert 0 == deciding.counted("shed_total", reason="long_wait")


@simulated
async def test_a_decision_takes_no_more_of_several_engines_than_one_can_do() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), capacity=Weight(1024, 4))
    deciding.admission.resize(3)
    one, other = (deciding.driver.decide(query(samples=12, seed=seed)) for seed in (1, 2))
    await asyncio.gather(one, other)
    assert [4] * 6 == [len(batch) for batch in deciding.backend.batches]
    assert (3, 8) == (now(), deciding.backend.most_in_flight)


@simulated
async def test_draws_that_would_all_be_the_same_are_expected_once() -> None:
    tokenizer = ToyTokenizer(mask=True)
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), tokenizer=tokenizer, max_wait_s=0.5)
    await deciding.driver.decide(query(samples=1))
    going = asyncio.create_task(deciding.driver.decide(query(samples=16, seed=1)))
    await asyncio.sleep(0.5)
    with pytest.raises(Overloaded):
        await deciding.driver.decide(query(samples=32))
    assert (await deciding.driver.decide(query(samples=32, slot_fill="mask"))).decision.answers
    await going


@simulated
async def test_what_is_shed_is_counted_by_its_reason() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), capacity=Weight(64, 1), max_waiting=0)
    going = asyncio.create_task(deciding.driver.decide(query(samples=1)))
    await asyncio.sleep(0.5)
    with pytest.raises(Overloaded):
        await deciding.driver.decide(query(samples=1, seed=1))
    await going
    assert 1 == deciding.counted("shed_total", reason="queue_full")


# Twice the capacity


@simulated
async def test_at_twice_the_capacity_all_of_it_is_used_and_waits_are_as_estimated() -> None:
    """Sixteen permits of 50 ms make 320 reads a second; 640 a second come, at random, for 20 s."""
    random_ = random.Random(1)
    admission = Admission(ENGINE, max_waiting=1024, max_wait_s=2)
    waits: list[tuple[float, float]] = []  # estimated, and what they were
    shed = 0

    async def visit() -> None:
        nonlocal shed
        estimated, came = admission.estimated_wait_s(READ), now()
        try:
            async with admission.permit(READ):
                waits.append((estimated, now() - came))
                await asyncio.sleep(HELD_S)
        except Overloaded:
            shed += 1

    seconds = 20
    tasks: list[asyncio.Task[None]] = []
    while now() < seconds:
        tasks.append(asyncio.create_task(visit()))
        await asyncio.sleep(random_.expovariate(2 * CAPACITY))
    served = len(waits)
    await asyncio.gather(*tasks)
    assert pytest.approx(seconds * CAPACITY, rel=0.1) == served
    assert served + shed + admission.waiting <= len(tasks)
    assert max(real for _, real in waits) < 2 * 1.1
    told = [(estimated, real) for estimated, real in waits if estimated > 2 * HELD_S]
    assert len(told) > served / 2
    assert [] == [each for each in told if not each[0] / 2 <= each[1] <= 2 * each[0]]


@simulated
async def test_at_twice_the_capacity_no_decision_is_answered_late_and_as_many_as_can_be_are() -> None:
    """One in four has a deadline that is shorter than the queue is allowed to be."""
    random_, capacity = random.Random(2), ENGINE.reads / 0.5
    deciding = Deciding(FakeBackend(widths=[64], logprob=sure, delay_s=0.5), max_waiting=1024, max_wait_s=2)
    results: dict[str, list[float]] = {"answered": [], "shed": [], "late": []}

    async def ask(seed: int) -> None:
        came, deadline_s = now(), 1.0 if seed % 4 == 0 else 8.0
        try:
            await deciding.driver.decide(query(samples=1, seed=seed, deadline_s=deadline_s))
        except Overloaded:
            results["shed"].append(now() - came)
        except DeadlineExceeded:
            results["late"].append(now() - came)
        else:
            results["answered"].append(now() - came)
            assert now() - came <= deadline_s

    seconds = 20
    tasks: list[asyncio.Task[None]] = []
    while now() < seconds:
        tasks.append(asyncio.create_task(ask(len(tasks))))
        await asyncio.sleep(random_.expovariate(2 * capacity))
    answered = len(results["answered"])
    await asyncio.gather(*tasks)
    assert pytest.approx(seconds * capacity, rel=0.1) == answered
    assert {0} == set(results["shed"]), "at once"
    assert len(results["late"]) < 0.01 * len(tasks)
    assert deciding.idle
