"""Stages through the driver: later questions go on from earlier answers, or are not asked at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.answers import Answer, Reason, Skipped
from structured_server.core.conditions import Conditions
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema
from structured_server.core.reads import ReadRequest
from structured_server.driver import Outcome
from tests.fake_backend import FakeBackend
from tests.shell.deciding import TEAMS, Deciding, query, sure
from tests.shell.simulated_time import now, simulate, simulated
from tests.toy import ToyTokenizer

TOY = ToyTokenizer()
CHAIN = ("one", "two", "three", "four", "five")
NEVER_DECIDED = Limits(min_top_probability=1.0)
TEAM = Choice("Whose is it?", tuple((team, None) for team in TEAMS))


def noul(*depends_on: str, **asked: Any) -> Noul:
    """Return a yes/no question that may wait for others."""
    ask_if = tuple((name, tuple(answers)) for name, answers in asked.pop("ask_if", {}).items())
    return Noul("Is it so?", conditions=Conditions(depends_on, ask_if), **asked)


def schema(**questions: Question) -> Schema:
    return Schema(tuple(questions.items()))


def ends_with(request: ReadRequest, text: str) -> bool:
    """Tell whether a prompt ends with a text as the model's own words, right behind its turn's marker."""
    ids = TOY.encode_prompt(request.prompt.segments) + TOY.encode(text)
    return ids == request.prompt.ids


def skipped(outcome: Outcome, name: str) -> Reason:
    """Return why a question was skipped."""
    answer = outcome.decision.answers[name]
    assert isinstance(answer, Skipped)
    return answer.reason


@simulated
async def test_a_later_stages_prompt_ends_with_the_earlier_answers_and_its_canvas_goes_on_from_there() -> (
    None
):
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    asked = schema(urgent=noul(), team=TEAM, known=noul("urgent", "team"))
    outcome = await deciding.driver.decide(query(schema=asked))
    (first,), (second,) = deciding.backend.batches
    assert ends_with(first, "")
    assert ends_with(second, '{"urgent":"yes","team":"networking')
    goes_on = TOY.encode('","known":"')
    assert (goes_on, (len(goes_on),)) == (second.canvas[: len(goes_on)], second.positions)
    assert [("urgent", "team"), ("known",)] == [group.identifiers for group in outcome.decision.plan.groups]
    assert 2 == now()


@simulated
async def test_a_stage_goes_on_from_what_was_answered_not_from_what_is_likeliest_elsewhere() -> None:
    def no(_request: ReadRequest, token_id: int, _position: int) -> float:
        return -0.1 if TOY.token_text(token_id).strip() in ("no", "storage") else -9.0

    deciding = Deciding(FakeBackend(logprob=no))
    await deciding.driver.decide(query(schema=schema(urgent=noul(), team=TEAM, known=noul("urgent", "team"))))
    assert ends_with(deciding.backend.batches[1][0], '{"urgent":"no","team":"storage')


@simulated
async def test_a_threshold_decides_which_answer_a_later_stage_goes_on_from() -> None:
    def rather_yes(_request: ReadRequest, token_id: int, _position: int) -> float:
        return -1.0 if TOY.token_text(token_id).strip() == "yes" else -2.0

    deciding = Deciding(FakeBackend(logprob=rather_yes))
    asked = schema(urgent=noul(threshold=0.99), known=noul("urgent"))
    await deciding.driver.decide(query(schema=asked, samples=1))
    assert ends_with(deciding.backend.batches[1][0], '{"urgent":"no')


@simulated
async def test_a_chain_of_five_is_read_in_five_stages_each_behind_all_answers_before_it() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    chain = dict(zip(CHAIN, [noul(), *(noul(name) for name in CHAIN)], strict=False))
    outcome = await deciding.driver.decide(query(schema=schema(**chain), deadline_s=60))
    assert list(CHAIN) == list(outcome.decision.answers)
    assert {"decided"} == {answer.status for answer in outcome.decision.answers.values()}
    for index, (request,) in enumerate(deciding.backend.batches):
        before = ",".join(f'"{name}":"yes"' for name in CHAIN[:index])
        assert ends_with(request, "{" + before.removesuffix('"') if index else "")
    assert 5 == len(outcome.decision.reads) == now()
    assert (0, 5000) == (outcome.queue_ms, outcome.engine_ms)


@simulated
async def test_groups_of_one_stage_are_read_at_the_same_time() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    asked = schema(a=noul(), b=noul(), c=noul("a"), d=noul("b"), e=noul("a", "b"))
    await deciding.driver.decide(query(schema=asked))
    assert 2 == now()
    prompts = [request.prompt.ids for (request,) in deciding.backend.batches]
    assert 4 == len(set(prompts))
    for request, told in zip(
        (batch[0] for batch in deciding.backend.batches[1:]),
        ('{"a":"yes', '{"b":"yes', '{"a":"yes","b":"yes'),
        strict=True,
    ):
        assert ends_with(request, told)


@simulated
async def test_answers_stand_in_the_callers_order_whichever_stage_they_are_of() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    asked = schema(last=noul("first"), first=noul(), middle=noul(ask_if={"last": ["true"]}))
    outcome = await deciding.driver.decide(query(schema=asked))
    assert ["last", "first", "middle"] == list(outcome.decision.answers)
    assert 3 == len(outcome.decision.plan.stages)


# Not asked


@pytest.mark.parametrize(
    ("wanted", "is_asked"), [(["true"], True), (["false"], False), (["false", "true"], True)]
)
@simulated
async def test_a_question_is_asked_only_where_its_condition_is_met(wanted: list[str], is_asked: bool) -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    outcome = await deciding.driver.decide(
        query(schema=schema(urgent=noul(), why=noul(ask_if={"urgent": wanted})))
    )
    assert 1 + is_asked == len(deciding.backend.batches)
    if not is_asked:
        assert Reason("ask_if_not_met", "true", wanted, "urgent") == skipped(outcome, "why")


@simulated
async def test_a_condition_on_a_choice_names_its_options() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    asked = schema(
        team=TEAM, dns=noul(ask_if={"team": ["networking"]}), disk=noul(ask_if={"team": ["storage"]})
    )
    outcome = await deciding.driver.decide(query(schema=asked))
    assert isinstance(outcome.decision.answers["dns"], Answer)
    assert Reason("ask_if_not_met", "networking", ["storage"], "team") == skipped(outcome, "disk")


@simulated
async def test_what_waits_for_a_skipped_question_is_skipped_too() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    asked = schema(a=noul(), b=noul(ask_if={"a": ["false"]}), c=noul(ask_if={"b": ["true"]}), d=noul("b"))
    outcome = await deciding.driver.decide(query(schema=asked))
    assert Reason("ask_if_skipped", None, ["true"], "b") == skipped(outcome, "c")
    assert "decided" == outcome.decision.answers["d"].status, "it only depends on b, and goes on without"
    assert 2 == len(outcome.decision.readings)


@simulated
async def test_what_waits_for_an_answer_that_is_not_decided_is_skipped() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    asked = schema(a=noul(limits=NEVER_DECIDED), b=noul(ask_if={"a": ["true", "false"]}))
    outcome = await deciding.driver.decide(query(schema=asked))
    assert Reason("ask_if_undecided", None, ["true", "false"], "a") == skipped(outcome, "b")


@simulated
async def test_an_answer_that_nobody_may_act_on_is_left_out_as_if_it_had_not_been_asked_for() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    asked = schema(a=noul(limits=NEVER_DECIDED), b=noul(), c=noul("a", "b"))
    await deciding.driver.decide(query(schema=asked))
    await deciding.driver.decide(query(schema=schema(b=noul(), c=noul("b"))))
    _, (later,), _, (plain,) = deciding.backend.batches
    assert ends_with(later, '{"b":"yes')
    assert plain == later


@simulated
async def test_a_question_behind_nothing_but_undecided_answers_is_read_as_if_it_were_alone() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    await deciding.driver.decide(query(schema=schema(a=noul(limits=NEVER_DECIDED), b=noul("a"))))
    await deciding.driver.decide(query(schema=schema(b=noul())))
    assert deciding.backend.batches[1] == deciding.backend.batches[2]


# Whatever the conditions


@st.composite
def conditional(draw: st.DrawFn) -> Schema:
    """Return yes/no questions that wait for some of those before them, in any order."""
    names = "abcdefgh"[: draw(st.integers(1, 8))]
    questions: list[tuple[str, Question]] = []
    for index, name in enumerate(names):
        before = st.sets(st.sampled_from(names[:index]), max_size=3) if index else st.just(set())
        conditions = {each: [draw(st.sampled_from(["true", "false"]))] for each in sorted(draw(before))}
        limits = draw(st.sampled_from([Limits(), NEVER_DECIDED]))
        questions.append((name, noul(*sorted(draw(before)), ask_if=conditions, limits=limits)))
    return Schema(tuple(draw(st.permutations(questions))))


@given(conditional(), st.sampled_from(["none", "all"]))
def test_every_question_is_answered_once_or_skipped_for_a_reason_that_holds(
    asked: Schema, isolate: str
) -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        outcomes.append(await deciding.driver.decide(query(schema=asked, isolate=isolate)))

    simulate(scenario())
    answers = outcomes[0].decision.answers
    assert [name for name, _ in asked.questions] == list(answers)
    read = [name for reading in outcomes[0].decision.readings for name in reading.group.identifiers]
    assert sorted(read) == sorted(name for name, answer in answers.items() if isinstance(answer, Answer))
    for name, question in asked.questions:
        broken = [
            needed
            for needed, wanted in question.conditions.ask_if
            if answers[needed].status != "decided" or wanted != ("true",)
        ]
        answer = answers[name]
        assert bool(broken) is isinstance(answer, Skipped)
        if isinstance(answer, Skipped):
            assert answer.reason.question == broken[0]
    assert deciding.idle
