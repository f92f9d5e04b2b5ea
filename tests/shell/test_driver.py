"""The driver: every decision is answered in time or fails with what is wrong, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from structured_server.admission import Weight
from structured_server.core.prompt import build_prompt
from structured_server.core.questions import Noul, Schema
from structured_server.core.reads import ReadRequest
from structured_server.core.tokens import Segment
from structured_server.driver import LONG_STATE
from structured_server.errors import (
    DeadlineExceeded,
    InvalidQuestion,
    InvalidRequest,
    Overloaded,
    StateTooLong,
    UpstreamFailed,
    UpstreamProtocolError,
    UpstreamTimeout,
)
from tests.fake_backend import FakeBackend
from tests.shell.deciding import SCHEMA, Deciding, answers_of, query, sure, unsure
from tests.shell.simulated_time import now, simulated
from tests.toy import ToyTokenizer

# One decision


@simulated
async def test_a_decision_holds_every_answer_and_what_it_took() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=0.25))
    outcome = await deciding.driver.decide(query())
    decision = outcome.decision
    assert ["urgent", "team", "known"] == list(decision.answers)
    assert 0 == answers_of(outcome)["urgent"].option
    assert answers_of(outcome)["urgent"].headline > 0.999
    assert () == decision.warnings
    assert 1 == len(decision.reads)
    assert len("a pump") == outcome.state_tokens
    assert (0, 250) == (outcome.queue_ms, outcome.engine_ms)
    assert 0 < outcome.total_ms
    assert outcome.question_set.startswith("qs_")
    assert outcome.fingerprint.startswith("fp_")
    assert deciding.idle


@simulated
async def test_the_prompt_is_the_plans_and_ends_with_the_state_and_the_models_turn() -> None:
    deciding = Deciding()
    outcome = await deciding.driver.decide(query(state="xyz"))
    (request,) = deciding.backend.batches[0]
    tokenizer = deciding.tokenizer
    asked = outcome.decision.plan.groups[0].asked
    segments = build_prompt(tokenizer.chat, "schema_first", "json", asked, "xyz")
    assert segments == request.prompt.segments
    assert tokenizer.encode_prompt(segments) == request.prompt.ids


@pytest.mark.parametrize("in_prompt", [False, True])
@pytest.mark.parametrize("scaffold", ["prompt", "canvas"])
@simulated
async def test_the_empty_thought_block_stands_once_in_the_prompt_or_in_the_canvas(
    in_prompt: bool, scaffold: str
) -> None:
    tokenizer = ToyTokenizer(scaffold=True, scaffold_in_prompt=in_prompt)
    deciding = Deciding(tokenizer=tokenizer)
    await deciding.driver.decide(query(scaffold=scaffold, isolate="all"))
    request = deciding.backend.batches[0][0]
    block = tokenizer.scaffold
    assert (scaffold == "prompt") is (block == request.prompt.ids[-len(block) :])
    assert (scaffold == "canvas") is (block == request.canvas[: len(block)])
    assert 1 == request.prompt.ids.count(block[0]) + request.canvas.count(block[0])


@simulated
async def test_a_slot_may_be_filled_with_the_mask() -> None:
    tokenizer = ToyTokenizer(mask=True)
    deciding = Deciding(FakeBackend(logprob=unsure), tokenizer=tokenizer)
    await deciding.driver.decide(query(slot_fill="mask", samples=4))
    ((request,),) = deciding.backend.batches
    assert {tokenizer.mask} == {request.canvas[position] for position in request.positions}


@simulated
async def test_the_same_query_sends_the_same_bytes_and_another_seed_others() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    for seed in (0, 0, 1):
        await deciding.driver.decide(query(seed=seed))
    first, second, third = (batch[0] for batch in deciding.backend.batches)
    assert first == second
    assert first.prompt == third.prompt
    assert first.canvas != third.canvas


@simulated
async def test_a_fingerprint_changes_with_all_that_moves_numbers_and_with_nothing_else() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    prints = [
        (await deciding.driver.decide(each)).fingerprint
        for each in (
            query(),
            query(state="another", seed=7, deadline_s=1),
            query(layout="document_first"),
            query(samples=2),
            query(schema=Schema(SCHEMA.questions[:2])),
        )
    ]
    elsewhere = Deciding(FakeBackend(logprob=sure), surroundings=("another model",))
    prints.append((await elsewhere.driver.decide(query())).fingerprint)
    assert prints[0] == prints[1]
    assert 5 == len(set(prints))


@simulated
async def test_a_plan_is_compiled_once_for_a_question_set_its_options_and_what_the_backend_can_do() -> None:
    class Counting(ToyTokenizer):
        texts = 0

        def encode(self, text: str) -> tuple[int, ...]:
            self.texts += 1
            return super().encode(text)

    tokenizer = Counting()
    deciding = Deciding(FakeBackend(logprob=sure), tokenizer=tokenizer)
    costs = []
    other = query(template="lines")
    for each in (query(), query(state="another"), other, other):
        before = tokenizer.texts
        await deciding.driver.decide(each)
        costs.append(tokenizer.texts - before)
    assert costs[1] < costs[0] / 4, "the second query tokenises its prompt and nothing else"
    assert costs[1] == costs[3] < costs[2]


@simulated
async def test_a_wider_choice_of_widths_is_used_as_soon_as_the_backend_has_it() -> None:
    backend = FakeBackend(widths=[64], logprob=sure)
    deciding = Deciding(backend)
    one = query(schema=Schema(SCHEMA.questions[:1]))
    await deciding.driver.decide(one)
    backend.capabilities = FakeBackend(widths=[32, 64]).capabilities
    await deciding.driver.decide(one)
    assert [64, 32] == [batch[0].width for batch in backend.batches]


@pytest.mark.parametrize("extra", [-1, 0, 1])
@simulated
async def test_a_long_state_is_tokenised_to_the_same_ids_off_the_event_loop(extra: int) -> None:
    on_the_loop: set[bool] = set()

    class Watched(ToyTokenizer):
        def encode_prompt(self, segments: Sequence[Segment]) -> tuple[int, ...]:
            if any("z" in segment.text for segment in segments):
                on_the_loop.add(threading.current_thread() is threading.main_thread())
            return super().encode_prompt(segments)

    deciding = Deciding(FakeBackend(max_model_len=None, logprob=sure), tokenizer=Watched())
    state = "z" * (LONG_STATE + extra)
    outcome = await deciding.driver.decide(query(state=state))
    prompt = deciding.backend.batches[0][0].prompt
    assert ToyTokenizer().encode_prompt(prompt.segments) == prompt.ids
    assert len(state) == outcome.state_tokens
    assert {extra <= 0} == on_the_loop


# Groups


@simulated
async def test_groups_are_read_at_the_same_time_and_answered_in_the_callers_order() -> None:
    backend = FakeBackend(logprob=sure)
    backend.delays = {0: 3, 1: 1, 2: 2}
    deciding = Deciding(backend)
    outcome = await deciding.driver.decide(query(isolate="all"))
    assert 3 == now()
    assert 3 == backend.most_in_flight
    assert ["urgent", "team", "known"] == list(outcome.decision.answers)
    assert 3000 == outcome.engine_ms


@simulated
async def test_when_a_group_fails_the_others_are_cancelled_and_all_permits_come_back() -> None:
    backend = FakeBackend(delay_s=5)
    backend.delays = {1: 1, 3: 1, 4: 1}
    backend.failures = dict.fromkeys(backend.delays, UpstreamFailed("it broke."))
    deciding = Deciding(backend)
    with pytest.raises(UpstreamFailed, match="it broke"):
        await deciding.driver.decide(query(isolate="all"))
    assert 3 == now()
    assert 2 == backend.cancelled
    assert deciding.idle
    assert 3 == deciding.counted("upstream_errors_total", kind="failed")


@simulated
async def test_only_the_uncertain_group_is_read_again() -> None:
    def of_two_minds_about_teams(request: ReadRequest, token_id: int, position: int) -> float:
        return (sure if len(request.label_ids) < 6 else unsure)(request, token_id, position)

    deciding = Deciding(FakeBackend(logprob=of_two_minds_about_teams))
    outcome = await deciding.driver.decide(query(isolate="all"))
    assert [1, 1, 1, 3] == [len(batch) for batch in deciding.backend.batches]
    draws = {name: answer.draws for name, answer in answers_of(outcome).items()}
    assert {"urgent": 1, "team": 4, "known": 1} == draws
    assert ("team",) == outcome.decision.extended_by
    assert (3, 3) == tuple(deciding.counted("reads_total", kind=kind) for kind in ("first", "extra"))


# Several samples


@simulated
async def test_samples_are_read_at_once_where_there_is_room() -> None:
    deciding = Deciding(FakeBackend(delay_s=1))
    outcome = await deciding.driver.decide(query(samples=8))
    assert [8] == [len(batch) for batch in deciding.backend.batches]
    assert 1 == now()
    assert 8 == answers_of(outcome)["urgent"].draws
    assert 8 == len({request.canvas for request in deciding.backend.batches[0]})


@pytest.mark.parametrize(
    ("capacity", "pieces"),
    [
        (Weight(1024, 5), [5, 5, 2]),
        (Weight(200, 16), [3, 3, 3, 3]),
        (Weight(64, 1), [1] * 12),
    ],
)
@simulated
async def test_more_samples_than_there_is_room_for_are_read_in_pieces(
    capacity: Weight, pieces: list[int]
) -> None:
    deciding = Deciding(FakeBackend(widths=[64], delay_s=0.5), capacity=capacity)
    outcome = await deciding.driver.decide(query(samples=12))
    assert pieces == [len(batch) for batch in deciding.backend.batches]
    assert max(pieces) == deciding.backend.most_in_flight
    whole = Deciding(FakeBackend(widths=[64]))
    assert outcome.decision == (await whole.driver.decide(query(samples=12))).decision
    assert deciding.idle


@simulated
async def test_a_lead_read_goes_ahead_of_the_other_samples() -> None:
    deciding = Deciding(FakeBackend(delay_s=1))
    await deciding.driver.decide(query(samples=4, lead=True))
    assert [1, 3] == [len(batch) for batch in deciding.backend.batches]
    assert 2 == now()


# Waiting, and the deadline


@simulated
async def test_the_wait_for_a_permit_is_told_apart_from_the_engines_time() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), capacity=Weight(64, 1))
    first, second = await asyncio.gather(*(deciding.driver.decide(query(seed=seed)) for seed in range(2)))
    assert (0, 1000) == (first.queue_ms, first.engine_ms)
    assert (1000, 1000) == (second.queue_ms, second.engine_ms)
    assert 1 == deciding.counted("queue_seconds_sum")
    assert 2 == deciding.counted("batch_seconds_sum", kind="first")


@simulated
async def test_without_room_in_line_a_decision_is_refused_at_once() -> None:
    deciding = Deciding(FakeBackend(delay_s=1), capacity=Weight(64, 1), max_waiting=0)
    going = asyncio.create_task(deciding.driver.decide(query(samples=1)))
    await asyncio.sleep(0.5)
    with pytest.raises(Overloaded):
        await deciding.driver.decide(query(samples=1, seed=1))
    assert 0.5 == now()
    await going
    assert deciding.idle


@pytest.mark.parametrize("isolate", ["none", "all"])
@simulated
async def test_past_the_deadline_everything_is_cancelled(isolate: str) -> None:
    deciding = Deciding(FakeBackend(delay_s=100))
    with pytest.raises(DeadlineExceeded) as caught:
        await deciding.driver.decide(query(isolate=isolate, deadline_s=2.5))
    assert 2.5 == now()
    assert "no answer within the deadline of 2500 ms." == caught.value.message
    assert len(deciding.backend.batches) == deciding.backend.cancelled
    assert deciding.idle


@simulated
async def test_the_deadline_holds_in_line_too() -> None:
    deciding = Deciding(FakeBackend(delay_s=100), capacity=Weight(64, 1))
    going = asyncio.create_task(deciding.driver.decide(query(samples=1, deadline_s=50)))
    await asyncio.sleep(0)
    with pytest.raises(DeadlineExceeded):
        await deciding.driver.decide(query(deadline_s=2))
    assert 2 == now()
    assert 0 == deciding.admission.waiting
    assert 1 == len(deciding.backend.batches)
    going.cancel()
    await asyncio.wait([going])
    assert deciding.idle


@simulated
async def test_decisions_whose_deadlines_pass_in_one_instant_all_leave_cleanly() -> None:
    deciding = Deciding(FakeBackend(delay_s=100), capacity=Weight(64, 2))
    results = await asyncio.gather(
        *(deciding.driver.decide(query(samples=2, seed=seed, deadline_s=2)) for seed in range(20)),
        return_exceptions=True,
    )
    assert {DeadlineExceeded} == {type(result) for result in results}
    assert deciding.idle


@simulated
async def test_a_cancelled_decision_leaves_nothing_behind() -> None:
    deciding = Deciding(FakeBackend(delay_s=100), capacity=Weight(128, 2))
    tasks = [
        asyncio.create_task(deciding.driver.decide(query(isolate="all", seed=seed))) for seed in range(3)
    ]
    await asyncio.sleep(1)
    assert 2 == deciding.backend.in_flight
    assert 4 == deciding.admission.waiting  # no decision asks for more at once than there is
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert deciding.idle


# Failures


@pytest.mark.parametrize("samples", ["auto", 1, 4])
@simulated
async def test_a_first_read_that_fails_is_the_decisions_failure(samples: int | str) -> None:
    backend = FakeBackend()
    backend.failures = dict.fromkeys((0, 1, 2), UpstreamTimeout("it did not answer."))
    deciding = Deciding(backend)
    with pytest.raises(UpstreamTimeout):
        await deciding.driver.decide(query(samples=samples))
    assert 3 == len(backend.batches)
    assert 3 == deciding.counted("upstream_errors_total", kind="timeout")
    assert 0 == deciding.counted("decisions_total", extended="false")
    assert deciding.idle


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.5, -9999.0])
@simulated
async def test_a_first_read_that_makes_no_sense_is_an_upstream_error_and_counted(value: float) -> None:
    deciding = Deciding(FakeBackend(logprob=lambda *_: value))
    with pytest.raises(UpstreamProtocolError):
        await deciding.driver.decide(query())
    assert 1 == deciding.counted("upstream_errors_total", kind="protocol")
    assert deciding.idle


@simulated
async def test_questions_that_fit_no_canvas_are_the_callers_error_and_nothing_is_read() -> None:
    deciding = Deciding(FakeBackend(widths=[16]))
    with pytest.raises(InvalidQuestion):
        await deciding.driver.decide(query(schema=Schema((("averylongidentifier", Noul("So?")),))))
    assert [] == deciding.backend.batches


# Too long


@simulated
async def test_a_state_that_just_fits_is_read_and_one_token_more_is_refused_with_numbers() -> None:
    free = Deciding(FakeBackend(widths=[64], max_model_len=None))
    around = len((await read_once(free, "")).prompt.ids)
    room = around + 64 + 50
    deciding = Deciding(FakeBackend(widths=[64], max_model_len=room, logprob=sure))
    outcome = await deciding.driver.decide(query(state="x" * 50))
    assert 50 == outcome.state_tokens
    with pytest.raises(StateTooLong) as caught:
        await deciding.driver.decide(query(state="x" * 51))
    assert "state has 51 tokens; 50 fit beside these questions." == caught.value.message
    assert ("state",) == caught.value.path
    assert f"--max-model-len above {room}" in (caught.value.hint or "")
    assert 1 == len(deciding.backend.batches)


@pytest.mark.parametrize("left", [-1, 0, 1])
@simulated
async def test_questions_that_leave_no_room_for_any_state_are_told_so(left: int) -> None:
    free = Deciding(FakeBackend(widths=[64], max_model_len=None))
    around = len((await read_once(free, "")).prompt.ids)
    room = around + 64 + left
    deciding = Deciding(FakeBackend(widths=[64], max_model_len=room))
    with pytest.raises(InvalidRequest if left <= 0 else StateTooLong) as caught:
        await deciding.driver.decide(query(state="x" * 9))
    if left <= 0:
        taken = f"questions take {around + 64} tokens of prompt and canvas"
        assert f"{taken}; the engine's context of {room} leaves no room for a state." == caught.value.message


@simulated
async def test_every_group_must_fit_beside_the_state() -> None:
    wordy = Noul("Is it? " * 40)
    schema = Schema((("short", Noul("So?")), ("wordy", wordy)))
    deciding = Deciding(FakeBackend(widths=[64], max_model_len=450, logprob=sure))
    await deciding.driver.decide(query(schema=Schema(schema.questions[:1]), state="x" * 40))
    with pytest.raises((StateTooLong, InvalidRequest)):
        await deciding.driver.decide(query(schema=schema, state="x" * 40, isolate="all"))


async def read_once(deciding: Deciding, state: str) -> ReadRequest:
    """Return the read that a state and the usual questions come to."""
    await deciding.driver.decide(query(state=state, samples=1))
    return deciding.backend.batches[0][0]


# Large decisions


@simulated
async def test_a_decision_of_any_size_is_served_by_an_idle_server_in_turns() -> None:
    """It asks for no more at once than there is, so it never fills the line by itself."""
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), capacity=Weight(64, 4), max_waiting=0)
    many = Schema(tuple((f"q{index}", Noul(f"Is it {index}?")) for index in range(100)))
    outcome = await deciding.driver.decide(query(schema=many, isolate="all", deadline_s=1000))
    assert 100 == len(outcome.decision.answers)
    assert 0 == outcome.queue_ms
    assert deciding.idle


@simulated
async def test_more_draws_than_there_is_room_for_are_served_by_an_idle_server_in_turns() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1), capacity=Weight(64, 4), max_waiting=0)
    outcome = await deciding.driver.decide(query(samples=32, deadline_s=1000))
    assert {32} == {answer.draws for answer in answers_of(outcome).values()}
    assert 0 == outcome.queue_ms
