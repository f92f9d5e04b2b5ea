"""Thoughts: written once before a group is read, and then the same in the prompt of every draw."""

from __future__ import annotations

from typing import Any

import pytest

from structured_server.admission import Weight
from structured_server.core.conditions import Conditions
from structured_server.core.questions import Noul, Schema
from structured_server.core.reads import Image
from structured_server.core.tokens import Kind
from structured_server.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    StateTooLong,
    UpstreamFailed,
)
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, query, sure, unsure
from tests.shell.simulated_time import now, simulated
from tests.toy import ToyTokenizer

TOY = ToyTokenizer(scaffold=True)
WORDS = "it says: pump, down"
WRITTEN = TOY.encode(WORDS)
OPENS, CLOSES = TOY.scaffold[:-1], TOY.scaffold[-1:]


def thinker(tokenizer: ToyTokenizer = TOY, *, words: str = WORDS, **settings: Any) -> Deciding:
    """Return a driver over a backend that writes these words."""
    abilities: dict[str, Any] = {"logprob": sure, "generation": True, "thought": tokenizer.encode(words)}
    return Deciding(FakeBackend(**abilities | settings), tokenizer=tokenizer)


@pytest.mark.parametrize("in_prompt", [False, True])
@pytest.mark.parametrize("scaffold", ["prompt", "canvas"])
@simulated
async def test_the_thought_is_written_behind_the_opened_block_of_a_thinking_prompt(
    in_prompt: bool, scaffold: str
) -> None:
    deciding = thinker(ToyTokenizer(scaffold=True, scaffold_in_prompt=in_prompt))
    assert deciding.tokenizer.thinking is not None
    await deciding.driver.decide(query(think=50, scaffold=scaffold))
    ((prompt, tokens, stop),) = deciding.backend.generated
    assert (50, CLOSES) == (tokens, (stop,))
    assert deciding.tokenizer.thinking.start == prompt.segments[0].text
    assert deciding.tokenizer.encode_prompt(prompt.segments) + OPENS == prompt.ids
    assert "a pump" in [segment.text for segment in prompt.segments if segment.kind is Kind.STATE]


@pytest.mark.parametrize(("tokens", "closed"), [(50, True), (7, False)])
@simulated
async def test_the_thoughts_ids_stand_in_the_prompt_of_all_draws_in_a_closed_block(
    tokens: int, closed: bool
) -> None:
    """Whether the model closed it or was cut off."""
    deciding = thinker(logprob=unsure)
    outcome = await deciding.driver.decide(query(think=tokens))
    ((written_behind, _, _),) = deciding.backend.generated
    first, extra = deciding.backend.batches
    assert (1, 3) == (len(first), len(extra))
    (prompt,) = {request.prompt for request in (*first, *extra)}
    thought = WRITTEN[:tokens]
    assert (*written_behind.ids, *thought, *CLOSES) == prompt.ids
    assert written_behind.segments == prompt.segments
    ((questions, reported),) = outcome.decision.thoughts
    assert ("urgent", "team", "known") == questions
    assert (thought, WORDS[:tokens], closed) == (reported.ids, reported.text, reported.closed)
    assert 0 <= reported.seconds


@simulated
async def test_a_thought_of_nothing_leaves_an_empty_block() -> None:
    deciding = thinker(words="")
    outcome = await deciding.driver.decide(query(think=5))
    ((request,),) = deciding.backend.batches
    assert TOY.scaffold == request.prompt.ids[-len(TOY.scaffold) :]
    ((_, thought),) = outcome.decision.thoughts
    assert ((), "", True) == (thought.ids, thought.text, thought.closed)


@pytest.mark.parametrize("scaffold", ["prompt", "canvas"])
@simulated
async def test_the_block_stands_once_whatever_the_place_of_the_empty_one(scaffold: str) -> None:
    deciding = thinker()
    await deciding.driver.decide(query(think=50, scaffold=scaffold))
    ((request,),) = deciding.backend.batches
    assert 1 == request.prompt.ids.count(OPENS[0])
    if scaffold == "prompt":
        assert 0 == request.canvas.count(OPENS[0])


@simulated
async def test_groups_think_apart_and_at_the_same_time_before_they_are_read() -> None:
    deciding = thinker(delay_s=1)
    outcome = await deciding.driver.decide(query(think=50, isolate="all"))
    assert 3 == len(deciding.backend.generated) == len(outcome.decision.thoughts)
    assert [("urgent",), ("team",), ("known",)] == [names for names, _ in outcome.decision.thoughts]
    assert 2 == now()
    assert (0, 2000) == (outcome.queue_ms, outcome.engine_ms)


@simulated
async def test_a_later_stage_thinks_with_the_earlier_questions_in_sight_and_goes_on_from_the_answers() -> (
    None
):
    deciding = thinker()
    schema = Schema((("a", Noul("So?")), ("b", Noul("And?", conditions=Conditions(("a",))))))
    await deciding.driver.decide(query(schema=schema, think=50))
    (_, (second, _, _)), (_, (request,)) = deciding.backend.generated, deciding.backend.batches
    assert (*second.ids, *WRITTEN, *CLOSES, *TOY.encode('{"a":"yes')) == request.prompt.ids


@simulated
async def test_with_a_thought_and_without_the_same_noise_is_drawn() -> None:
    deciding = thinker()
    await deciding.driver.decide(query(think=50))
    await deciding.driver.decide(query())
    (thoughtful,), (plain,) = deciding.backend.batches
    assert plain.canvas == thoughtful.canvas
    assert plain.prompt != thoughtful.prompt


@simulated
async def test_without_a_wish_nothing_is_written() -> None:
    deciding = thinker()
    outcome = await deciding.driver.decide(query())
    assert [] == deciding.backend.generated
    assert () == outcome.decision.thoughts


# Where there is no thinking


@pytest.mark.parametrize(
    "deciding",
    [
        Deciding(FakeBackend(), tokenizer=TOY),
        Deciding(FakeBackend(generation=True)),
        thinker(continues=False),
    ],
    ids=["the backend does not write", "the model has no thought channel", "chat messages only"],
)
@simulated
async def test_a_thought_that_cannot_be_had_is_the_callers_error_and_nothing_is_asked(
    deciding: Deciding,
) -> None:
    with pytest.raises(InvalidRequest, match=r"^read\.think is not possible") as caught:
        await deciding.driver.decide(query(think=1))
    assert ("read", "think") == caught.value.path
    assert ([], []) == (deciding.backend.generated, deciding.backend.batches)


@simulated
async def test_thoughts_about_images_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not possible with images"):
        await thinker(images=True).driver.decide(query(think=1, images=(Image("image/png", b"x"),)))


# Failures and limits


@simulated
async def test_a_thought_that_fails_is_the_decisions_failure() -> None:
    deciding = thinker()
    deciding.backend.generation_failure = UpstreamFailed("it broke.")
    with pytest.raises(UpstreamFailed):
        await deciding.driver.decide(query(think=5))
    assert [] == deciding.backend.batches
    assert deciding.idle


@simulated
async def test_the_deadline_holds_while_the_model_thinks() -> None:
    deciding = thinker(delay_s=100)
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(think=5, deadline_s=2))
    assert 2 == now()
    assert deciding.idle


@simulated
async def test_thoughts_take_their_place_in_line() -> None:
    backend = FakeBackend(logprob=sure, delay_s=1, generation=True)
    deciding = Deciding(backend, tokenizer=TOY, capacity=Weight(64, 1))
    outcome = await deciding.driver.decide(query(think=5, isolate="all"))
    assert 6 == now(), "three thoughts one after the other, then three reads"
    assert 1 == deciding.backend.most_in_flight
    deciding.admission.max_waiting = 0
    async with deciding.admission.permit(Weight(64, 1)):
        with pytest.raises(Overloaded):
            await deciding.driver.decide(query(think=5, seed=1))
    assert outcome.decision.thoughts
    assert deciding.idle


@simulated
async def test_a_state_leaves_room_for_the_longest_thought() -> None:
    free = thinker(max_model_len=None, widths=[64], words="")
    await free.driver.decide(query(state="", think=5))
    around = len(free.backend.batches[0][0].prompt.ids)
    room = around + 64 + 30
    deciding = thinker(max_model_len=room, widths=[64], words="w" * 20)
    await deciding.driver.decide(query(state="x" * 10, think=20))
    assert room == len(deciding.backend.batches[0][0].prompt.ids) + 64
    with pytest.raises(StateTooLong, match="has 11 tokens; 10 fit"):
        await deciding.driver.decide(query(state="x" * 11, think=20))
