"""Conditions: which questions come first, and which conditions can never be met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core import conditions
from structured_server.core.conditions import UNCONDITIONAL, Conditions
from structured_server.core.questions import Choice, Noul, Question, Schema, Score
from structured_server.errors import InvalidQuestion
from tests.core.strategies import quick, staged_schemas

NOUL = Noul("Is it?")
TEAM = Choice("Whose?", (("compute", None), ("billing", None)))
BAD = Score("How bad?", ("none", "high"))


def after(*names: str, question: Question = NOUL, **ask_if: str) -> Question:
    """Return a question that depends on others; `ask_if` names one answer that it waits for each."""
    wanted = tuple((name, (answer,)) for name, answer in ask_if.items())
    return replace(question, conditions=Conditions(names, wanted))


def stages_of(**questions: Question) -> list[str]:
    """Return each stage's ids in one word."""
    return ["".join(stage) for stage in conditions.stages(dict(Schema(tuple(questions.items())).questions))]


def refusal(**questions: Question) -> InvalidQuestion:
    with pytest.raises(InvalidQuestion) as refused:
        Schema(tuple(questions.items()))
    return refused.value


def test_a_question_needs_whom_it_depends_on_and_whose_answers_it_waits_for_once_each() -> None:
    both = Conditions(("a", "b"), (("c", ("true",)), ("a", ("true",))))
    assert ("a", "b", "c") == both.needs
    assert () == UNCONDITIONAL.needs == Conditions(alone=True).needs


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        ({"a": NOUL, "b": NOUL}, ["ab"]),
        ({"a": NOUL, "b": after("a")}, ["a", "b"]),
        ({"b": after("a"), "a": NOUL}, ["a", "b"]),
        ({"c": after("b"), "a": NOUL, "b": after("a"), "d": NOUL}, ["ad", "b", "c"]),
        ({"a": NOUL, "b": after("a"), "c": after("a"), "d": after("b", "c")}, ["a", "bc", "d"]),
        ({"a": NOUL, "b": after("a"), "c": after("a", "b")}, ["a", "b", "c"]),
        ({"a": NOUL, "b": after(a="true")}, ["a", "b"]),
        ({"z": NOUL, "y": after("z"), "x": NOUL, "w": after("x")}, ["zx", "yw"]),
    ],
    ids=str,
)
def test_each_stage_holds_what_needs_only_those_before_in_the_callers_order(
    questions: dict[str, Question], expected: list[str]
) -> None:
    assert expected == stages_of(**questions)


@quick
@given(staged_schemas())
def test_every_question_is_in_the_first_stage_after_all_that_it_needs(asked: Schema) -> None:
    by_name = dict(asked.questions)
    found = conditions.stages(by_name)
    number = {name: index for index, stage in enumerate(found) for name in stage}
    assert sorted(by_name) == sorted(name for stage in found for name in stage)
    for name, question in by_name.items():
        needs = question.conditions.needs
        assert number[name] == max((number[needed] + 1 for needed in needs), default=0)


@quick
@given(staged_schemas())
def test_given_are_all_that_a_question_rests_on_and_nothing_else(asked: Schema) -> None:
    by_name = dict(asked.questions)
    for name, question in by_name.items():
        found = conditions.given(by_name, name)
        needs = question.conditions.needs
        rests_on = {*needs, *(n for needed in needs for n in conditions.given(by_name, needed))}
        assert rests_on == set(found)
        assert name not in found
        assert [n for n in by_name if n in rests_on] == list(found)


def test_given_come_in_the_callers_order_whoever_names_them() -> None:
    questions: dict[str, Question] = {"b": NOUL, "a": after("b"), "c": NOUL, "d": after("c", "a")}
    assert ("b", "a", "c") == conditions.given(questions, "d")
    assert () == conditions.given(questions, "b")


@pytest.mark.parametrize(
    ("wrong", "path", "message"),
    [
        (after("nobody"), ("depends_on",), "names 'nobody', which is no question of this request."),
        (after("a", "nobody"), ("depends_on",), "names 'nobody', which is no question of this request."),
        (after(nobody="true"), ("ask_if",), "names 'nobody', which is no question of this request."),
        (after(a="yes"), ("ask_if", "a"), "holds an answer that this question cannot have."),
        (after(team="networking"), ("ask_if", "team"), "holds an answer that this question cannot have."),
        (after(bad="none"), ("ask_if", "bad"), "holds an answer that this question cannot have."),
        (after(bad="2"), ("ask_if", "bad"), "holds an answer that this question cannot have."),
        (
            replace(NOUL, conditions=Conditions(ask_if=(("a", ()),))),
            ("ask_if", "a"),
            "needs at least one answer.",
        ),
        (
            replace(NOUL, conditions=Conditions(ask_if=(("team", ("billing", "disks")),))),
            ("ask_if", "team"),
            "holds an answer that this question cannot have.",
        ),
    ],
    ids=str,
)
def test_a_condition_that_names_what_there_is_not_is_refused_with_its_place(
    wrong: Question, path: tuple[str, ...], message: str
) -> None:
    refused = refusal(a=NOUL, team=TEAM, bad=BAD, q=wrong)
    assert (("questions", "q", *path), message) == (refused.path, refused.predicate)


@pytest.mark.parametrize(
    "ask_if", [{"a": "true"}, {"a": "false"}, {"team": "billing"}, {"bad": "1"}], ids=str
)
def test_a_condition_may_wait_for_any_answer_that_a_question_can_have(ask_if: dict[str, Any]) -> None:
    assert ["ateambad", "q"] == stages_of(a=NOUL, team=TEAM, bad=BAD, q=after(**ask_if))


@pytest.mark.parametrize(
    ("questions", "first", "circle"),
    [
        ({"a": after("a")}, "a", "a needs a"),
        ({"a": after(a="true")}, "a", "a needs a"),
        ({"a": after("b"), "b": after("a")}, "a", "a needs b needs a"),
        ({"x": after("b"), "a": after("b"), "b": after("a")}, "b", "b needs a needs b"),
        (
            {"a": NOUL, "b": after("a", "d"), "c": after("b"), "d": after(c="true")},
            "b",
            "b needs d needs c needs b",
        ),
    ],
    ids=str,
)
def test_questions_that_wait_for_each_other_are_refused_with_the_way_round(
    questions: dict[str, Question], first: str, circle: str
) -> None:
    refused = refusal(**questions)
    assert ("questions", first, "depends_on") == refused.path
    assert f"waits for itself: {circle}." == refused.predicate


@quick
@given(staged_schemas(), st.data())
def test_a_question_set_with_a_circle_is_always_refused_along_needs(
    asked: Schema, data: st.DataObject
) -> None:
    by_name = dict(asked.questions)
    resting = [name for name in by_name if conditions.given(by_name, name)]
    last = data.draw(st.sampled_from(resting or list(by_name)))
    first = data.draw(st.sampled_from([*conditions.given(by_name, last), last]))
    before = by_name[first].conditions
    closed = replace(before, depends_on=(*before.depends_on, last))
    by_name[first] = replace(by_name[first], conditions=closed)
    with pytest.raises(InvalidQuestion, match="waits for itself") as refused:
        Schema(tuple(by_name.items()))
    assert refused.value.path[-1] == "depends_on"


@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_of_400_questions_is_400_stages(backwards: bool) -> None:
    chain = [("q0", NOUL), *((f"q{n}", after(f"q{n - 1}")) for n in range(1, 400))]
    by_name: dict[str, Question] = dict(Schema(tuple(chain[::-1] if backwards else chain)).questions)
    assert [[f"q{n}"] for n in range(400)] == conditions.stages(by_name)
    assert 399 == len(conditions.given(by_name, "q399"))


def test_a_circle_of_400_questions_is_told_with_its_whole_path() -> None:
    refused = refusal(**{f"q{n}": after(f"q{(n + 1) % 400}") for n in range(400)})
    assert refused.predicate.startswith("waits for itself: q0 needs q1 needs q2 ")
    assert refused.predicate.endswith(" needs q399 needs q0.")


def test_many_ways_to_the_same_question_are_walked_once_each() -> None:
    """With two questions a layer that both need both before them, there are 2 to the 150th ways."""
    layers = {
        f"{side}{n}": after(f"l{n - 1}", f"r{n - 1}") if n else NOUL for n in range(150) for side in "lr"
    }
    assert 150 == len(stages_of(**layers))
