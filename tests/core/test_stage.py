"""Stages: what is read next, with which answers before it, and what is not asked at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.answers import Answer, Reason, Skipped
from structured_server.core.conditions import Conditions
from structured_server.core.decision import Decision, conclude
from structured_server.core.plan import Compiler, ReadOptions
from structured_server.core.policy import ReadPolicy
from structured_server.core.prompt import Answered
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.reading import Arrangement, GroupReading
from structured_server.core.reads import Prompt
from structured_server.core.stage import OpenGroup, answers_of, open_stage
from structured_server.core.template import TemplateStyle
from tests.core.strategies import quick, staged_schemas
from tests.core.synthetic import CAPABILITIES, TOY, answers, plan, read_with, schema
from tests.toy import LABELS, ToyTokenizer

NOUL = Noul("Is it?")
TEAM = Choice("Whose?", (("compute", None), ("billing", None), ("storage", None)))
BAD = Score("How bad?", ("none", "low", "high"))
STRICT = Limits(min_top_probability=0.9)
YES, NO = (1.0, 0.0), (0.0, 1.0)
PERHAPS = (0.6, 0.4)
LETTERED = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"])

Believed = Mapping[str, Sequence[float]]


def after(*names: str, question: Question = NOUL, **ask_if: str) -> Question:
    """Return a question that depends on others; `ask_if` names the answers that it waits for, with commas."""
    wanted = tuple((name, tuple(answers.split(","))) for name, answers in ask_if.items())
    return replace(question, conditions=Conditions(names, wanted))


def decide(
    asked: Schema,
    believed: Believed,
    options: ReadOptions = ReadOptions(),  # noqa: B008  frozen
) -> tuple[Decision, dict[str, OpenGroup]]:
    """Decide stage by stage; return the decision, and the group in which each question was read."""
    compiler = Compiler(options, CAPABILITIES, LETTERED)
    compiled = compiler.plan(asked)
    found: dict[str, Answer | Skipped] = {}
    readings: list[GroupReading] = []
    read: dict[str, OpenGroup] = {}
    for stage in compiled.stages:
        opened, skipped = open_stage(stage, found, compiler)
        found.update(skipped)
        for each in opened:
            draw = [
                believed.get(name, (1.0,) + (0.0,) * (len(asked.labels) - 1))
                for name, asked in zip(each.group.identifiers, each.group.asked, strict=True)
            ]
            _, reading = read_with(each.group, ReadPolicy(samples=1), [draw])
            readings.append(reading)
            found.update(answers_of(reading))
            read.update(dict.fromkeys(each.group.identifiers, each))
    return conclude(compiled, readings, found, TOY.token_text), read


def told(opened: OpenGroup) -> list[tuple[str, int]]:
    """Return the answers before a group, by the questions' names."""
    names = [name for name, _ in opened.group.given]
    return list(zip(names, [each.answer for each in opened.answered], strict=True))


def test_a_first_stage_is_opened_as_it_is_planned() -> None:
    compiler = Compiler(ReadOptions(), CAPABILITIES, LETTERED)
    compiled = compiler.plan(schema(a=NOUL, b=TEAM))
    opened, skipped = open_stage(compiled.stages[0], {}, compiler)
    assert [OpenGroup(group, ()) for group in compiled.groups] == opened
    assert {} == skipped


def test_a_question_goes_on_from_the_answers_that_it_depends_on() -> None:
    asked = schema(urgent=NOUL, team=TEAM, bad=after("team", "urgent", question=BAD))
    _, read = decide(asked, {"urgent": NO, "team": (0.0, 0.0, 1.0)})
    assert [("urgent", 1), ("team", 2)] == told(read["bad"])
    group = read["bad"].group
    assert (Answered(group.given[0][1], 1), Answered(group.given[1][1], 2)) == read["bad"].answered
    text = LETTERED.text(group.canvas.opening.filled([1, 2]))
    assert '{"urgent":"no","team":"storage' == text


@pytest.mark.parametrize(
    ("before", "believed", "answer", "wanted", "asked"),
    [
        (NOUL, YES, "true", "true", True),
        (NOUL, NO, "false", "true", False),
        (NOUL, NO, "false", "false,true", True),
        (replace(NOUL, threshold=0.7), PERHAPS, "false", "true", False),
        (TEAM, (0.0, 1.0, 0.0), "billing", "billing,compute", True),
        (TEAM, (0.0, 0.0, 1.0), "storage", "billing,compute", False),
        (BAD, (0.0, 0.4, 0.6), "2", "1,2", True),
        (BAD, (1.0, 0.0, 0.0), "0", "1,2", False),
    ],
)
def test_a_question_is_asked_only_with_an_answer_that_it_waits_for(
    before: Question, believed: Sequence[float], answer: str, wanted: str, asked: bool
) -> None:
    decision, _ = decide(schema(a=before, b=after(a=wanted)), {"a": believed})
    assert answer == answers(decision)["a"].key
    later = decision.answers["b"]
    assert ("decided" if asked else "skipped") == later.status
    if isinstance(later, Skipped):
        assert Reason("ask_if_not_met", answer, wanted.split(","), "a") == later.reason
        assert (NOUL.instructions, "a") == (later.question.instructions, later.question.conditions.needs[0])


def test_what_waits_for_an_answer_that_is_not_decided_is_skipped() -> None:
    asked = schema(a=replace(NOUL, limits=STRICT), b=after(a="true"))
    decision, read = decide(asked, {"a": PERHAPS})
    assert "abstained" == decision.answers["a"].status
    assert (
        Skipped(asked.questions[1][1], Reason("ask_if_undecided", None, ["true"], "a"))
        == (decision.answers["b"])
    )
    assert ["a"] == list(read)


def test_what_waits_for_a_skipped_question_is_skipped_in_turn() -> None:
    asked = schema(a=NOUL, b=after(a="true"), c=after(b="true,false"), d=after(c="true"), e=after("c"))
    decision, read = decide(asked, {"a": NO})
    codes = [each.reason.code for each in decision.answers.values() if isinstance(each, Skipped)]
    assert ["ask_if_not_met", "ask_if_skipped", "ask_if_skipped"] == codes
    assert ["true", "false"] == _reason(decision, "c").limit
    assert ("c", None) == (_reason(decision, "d").question, _reason(decision, "d").value)
    assert [("a", 1)] == told(read["e"]), "to depend on a skipped question is no reason to be skipped"


def _reason(decision: Decision, name: str) -> Reason:
    answer = decision.answers[name]
    assert isinstance(answer, Skipped)
    return answer.reason


def test_the_first_condition_that_is_not_met_is_the_reason() -> None:
    asked = schema(a=NOUL, b=NOUL, c=NOUL, d=after(a="true", b="true", c="true"))
    decision, _ = decide(asked, {"b": NO, "c": NO})
    assert "b" == _reason(decision, "d").question


def test_all_questions_of_a_group_that_is_not_read_are_skipped() -> None:
    asked = schema(a=NOUL, b=after(a="true"), c=after(a="true", question=BAD), d=after(a="false"))
    decision, read = decide(asked, {"a": NO})
    assert ["decided", "skipped", "skipped", "decided"] == [a.status for a in decision.answers.values()]
    assert ["a", "d"] == list(read)
    assert 2 == len(decision.reads)


@pytest.mark.parametrize("restate", [False, True])
@pytest.mark.parametrize("template", ["json", "lines"])
def test_an_undecided_question_is_left_out_of_what_the_next_ones_go_on_from(
    restate: bool, template: TemplateStyle
) -> None:
    """They are read as if they had depended on the others only."""
    unsure = replace(TEAM, limits=STRICT)
    options = ReadOptions(restate=restate, template=template)
    full = schema(a=NOUL, b=unsure, c=after("a", "b"), d=after("a", "b", question=BAD))
    _, read = decide(full, {"a": NO, "b": (0.5, 0.3, 0.2)}, options)
    _, without = decide(schema(a=NOUL, c=after("a"), d=after("a", question=BAD)), {"a": NO}, options)
    assert [("a", 1)] == told(read["c"])
    assert without["c"].group.canvas == read["c"].group.canvas
    assert without["c"].answered == read["c"].answered
    assert [each.labels for each in without["c"].group.asked] == [e.labels for e in read["c"].group.asked]
    assert read["c"] is read["d"]


def test_where_nothing_before_is_decided_a_question_is_read_as_if_it_came_first() -> None:
    asked = schema(a=replace(NOUL, limits=STRICT), b=after("a", question=BAD))
    _, read = decide(asked, {"a": PERHAPS}, ReadOptions(scaffold="canvas"))
    [alone] = plan(schema(b=BAD), ReadOptions(scaffold="canvas"), tokenizer=LETTERED).groups
    assert (alone.canvas, (), ()) == (read["b"].group.canvas, read["b"].group.given, read["b"].answered)


@quick
@given(staged_schemas(), st.data())
def test_every_question_is_answered_or_skipped_for_a_reason_that_holds(
    asked: Schema, data: st.DataObject
) -> None:
    believed = {}
    for name, question in asked.questions:
        count = len(question.options)
        chosen = data.draw(st.integers(0, count - 1))
        believed[name] = [float(index == chosen) for index in range(count)]
    isolate = data.draw(st.sampled_from(["none", "noul", "all"]))
    decision, read = decide(asked, believed, ReadOptions(isolate=isolate))  # type: ignore[arg-type]
    assert [name for name, _ in asked.questions] == list(decision.answers)
    keys = {name: answer.key for name, answer in answers(decision).items()}
    assert set(keys) == set(read)
    for name, question in asked.questions:
        met = all(keys.get(needed) in wanted for needed, wanted in question.conditions.ask_if)
        assert met == (name in read)
        if name in read:
            assert [keys[n] for n, _ in told(read[name])] == [
                each.asked.question.options[each.answer].key for each in read[name].answered
            ]


# Orders of the options


def reading_in(orders: int, draws: Sequence[Sequence[float]], question: Question = TEAM) -> Answer:
    """Answer a question whose draws list its options in so many orders."""
    [group] = plan(schema(q=question)).groups
    _, reading = read_with(group, ReadPolicy(samples=len(draws)), [[draw] for draw in draws])
    arrangements = tuple(
        Arrangement(Prompt(()), tuple(each.turned(turn) for each in group.asked)) for turn in range(orders)
    )
    return answers_of(replace(reading, job=replace(reading.job, arrangements=arrangements)))["q"]


DRAWS = [(0.2, 0.5, 0.3), (0.1, 0.8, 0.1), (0.3, 0.6, 0.1), (0.2, 0.5, 0.3)]


@pytest.mark.parametrize(
    ("arrangements", "draws", "question", "orders", "spread"),
    [
        (1, DRAWS, TEAM, 1, None),
        (4, DRAWS, TEAM, 3, 0.3),
        (4, DRAWS[2:], TEAM, 2, 0.2),
        (4, DRAWS[:1], TEAM, 1, None),
        (4, DRAWS, BAD, 1, None),
        (2, [YES, NO, PERHAPS], NOUL, 2, 1.0),
    ],
)
def test_the_spread_over_orders_is_told_where_there_were_several(
    arrangements: int, draws: Sequence[Sequence[float]], question: Question, orders: int, spread: float | None
) -> None:
    answer = reading_in(arrangements, draws, question)
    assert orders == answer.orders
    assert spread == (None if answer.order_spread is None else pytest.approx(answer.order_spread))
