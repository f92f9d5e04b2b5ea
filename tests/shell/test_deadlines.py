"""Deadlines: whatever a request asks for, it is answered within its deadline or fails at it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from structured_server.admission import Admission, Lane, Weight
from structured_server.core.answers import DecisionWarning
from structured_server.core.conditions import Conditions
from structured_server.core.questions import Choice, Noul, Schema
from structured_server.core.reads import Read, ReadRequest
from structured_server.driver import Driver
from structured_server.errors import DeadlineExceeded
from structured_server.metrics import Metrics
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, query, sure
from tests.shell.simulated_time import now, simulated, spend
from tests.toy import ToyTokenizer


def many(count: int) -> Schema:
    """Return so many questions."""
    return Schema(tuple((f"q{index}", Noul(f"Is it {index}?")) for index in range(count)))


class Stepping(FakeBackend):
    """Each denoise step takes a second."""

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Answer, after as many seconds as steps."""
        self.delay_s = float(batch[0].steps)
        return await super().read(batch)


@pytest.mark.parametrize(("steps", "in_time"), [(4, True), (6, False)])
@simulated
async def test_steps_take_their_time_out_of_the_deadline(steps: int, in_time: bool) -> None:
    deciding = Deciding(Stepping(logprob=sure, max_steps=8))
    asked = deciding.driver.decide(query(steps=steps, deadline_s=5))
    if in_time:
        assert (await asked).decision.answers
    else:
        with pytest.raises(DeadlineExceeded):
            await asked
    assert min(steps, 5) == now()
    assert deciding.idle


@simulated
async def test_thoughts_and_the_reads_after_them_have_one_deadline() -> None:
    deciding = Deciding(
        FakeBackend(logprob=sure, delay_s=2, generation=True), tokenizer=ToyTokenizer(scaffold=True)
    )
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(think=5, deadline_s=3))
    assert 3 == now()
    assert (1, 1) == (len(deciding.backend.generated), deciding.backend.cancelled)
    assert deciding.idle


@simulated
async def test_all_stages_have_one_deadline() -> None:
    schema = Schema(
        (
            ("a", Noul("So?")),
            ("b", Noul("So?", conditions=Conditions(("a",)))),
            ("c", Noul("So?", conditions=Conditions(("b",)))),
        )
    )
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=2))
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(schema=schema, deadline_s=5))
    assert (5, 3) == (now(), len(deciding.backend.batches))
    assert deciding.idle


@simulated
async def test_four_hundred_questions_end_with_the_deadline_and_leave_nothing_behind() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=0.5), capacity=Weight(64, 1))
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(schema=many(400), isolate="all", deadline_s=2.25))
    assert 2.25 == now()
    assert 5 == len(deciding.backend.batches)
    assert deciding.idle


@simulated
async def test_the_reads_of_a_wide_choice_have_one_deadline() -> None:
    options = tuple((f"option {index}", None) for index in range(24))
    deciding = Deciding(FakeBackend(logprob=sure, widths=[64], max_label_ids=16, delay_s=1))
    schema = Schema((("which", Choice("Which?", options)),))
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(schema=schema, deadline_s=1.5))
    assert 1.5 == now()
    assert deciding.idle


async def test_the_deadline_holds_while_questions_are_compiled_in_a_thread() -> None:
    class Stuck(ToyTokenizer):
        go_on, in_vain = threading.Event(), False

        def encode(self, text: str) -> tuple[int, ...]:
            self.in_vain = self.in_vain or not self.go_on.wait(5)
            return super().encode(text)

    tokenizer = Stuck()
    deciding = Deciding(FakeBackend(logprob=sure), tokenizer=tokenizer)
    try:
        with pytest.raises(DeadlineExceeded):
            await deciding.driver.decide(query(schema=many(40), deadline_s=0.05))
        assert not tokenizer.in_vain, "the answer came while it was stuck"
    finally:
        tokenizer.go_on.set()
    assert [] == deciding.backend.batches


@pytest.mark.parametrize(("takes_s", "in_time"), [(1, True), (3, False)])
@simulated
async def test_an_answer_that_is_ready_too_late_is_not_given(takes_s: float, in_time: bool) -> None:
    def caveats(_: Schema) -> Sequence[DecisionWarning]:
        spend(takes_s)  # nothing can interrupt what the answer is made with
        return ()

    backend, admission = FakeBackend(logprob=sure, delay_s=1), Admission(Weight(1024, 16), max_waiting=9)
    driver = Driver(backend, ToyTokenizer(), admission, Metrics(), caveats=caveats)
    asked = driver.decide(query(deadline_s=3))
    if in_time:
        assert (await asked).decision.answers
    else:
        with pytest.raises(DeadlineExceeded, match="no answer within the deadline of 3000 ms"):
            await asked


# Batches and those who wait


@simulated
async def test_what_somebody_waits_for_is_not_read_with_an_equal_item_of_a_batch() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), capacity=Weight(64, 1))
    batch = Lane(batch=True)
    tasks = [asyncio.create_task(deciding.driver.decide(query(seed=seed), batch)) for seed in range(5)]
    await asyncio.sleep(0.5)
    outcome = await deciding.driver.decide(query(seed=4))
    assert (2, False) == (now(), outcome.shared)
    await asyncio.gather(*tasks)
    assert 6 == len(deciding.backend.batches)


@simulated
async def test_an_item_of_a_batch_is_read_with_what_somebody_waits_for() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    waited_for = asyncio.create_task(deciding.driver.decide(query()))
    await asyncio.sleep(0.5)
    assert (await deciding.driver.decide(query(), Lane(batch=True))).shared
    await waited_for
    assert 1 == len(deciding.backend.batches)


@simulated
async def test_equal_items_of_batches_are_read_together() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    lanes = [Lane("a", batch=True), Lane("b", batch=True)]
    outcomes = await asyncio.gather(*(deciding.driver.decide(query(), lane) for lane in lanes))
    assert [False, True] == [outcome.shared for outcome in outcomes]
