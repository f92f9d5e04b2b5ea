"""Canvas after canvas, and canvases of few rows: what such a plan holds, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core import conditions
from structured_server.core.conditions import Conditions
from structured_server.core.plan import MAX_IN_SEQUENCE, Capabilities, Group, Plan, ReadOptions, compile_plan
from structured_server.core.questions import Noul, Schema
from structured_server.errors import InvalidRequest
from tests.core.jobs import job_of, requests_of
from tests.core.strategies import plain_ids, quick, schemas, staged_schemas
from tests.core.synthetic import CAPABILITIES, WIDTHS, plan, schema
from tests.core.triage import TRIAGE
from tests.toy import LABELS, ToyTokenizer

TOY = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"], scaffold=True)
YES_NO = Noul("Is it?")
SIX = schema(**dict.fromkeys("abcdef", YES_NO))
rows = st.integers(8, 64)
options = st.builds(
    ReadOptions,
    layout=st.sampled_from(["schema_first", "document_first"]),
    template=st.sampled_from(["json", "lines"]),
    keys=st.just("neutral"),
    isolate=st.sampled_from(["none", "noul", "all", "auto"]),
    restate=st.booleans(),
)


def grouped(compiled: Plan) -> list[list[str]]:
    """Return the ids of each group in one word, stage by stage."""
    return [["".join(group.identifiers) for group in stage] for stage in compiled.stages]


def given_to(group: Group) -> list[str]:
    return [name for name, _ in group.given]


def taken(group: Group) -> int:
    """Return the rows up to the last slot and the token behind it, which ends the answer."""
    return group.canvas.slots[-1].position + 2


@quick
@given(staged_schemas(), options, st.none() | rows, st.booleans())
def test_every_question_is_in_exactly_one_group(
    asked: Schema, read: ReadOptions, most: int | None, sequential: bool
) -> None:
    compiled = compile_plan(asked, replace(read, rows=most, sequential=sequential), CAPABILITIES, TOY)
    placed = [name for group in compiled.groups for name in group.identifiers]
    assert sorted(name for name, _ in asked.questions) == sorted(placed)
    assert asked == compiled.schema


@quick
@given(staged_schemas(), options, st.none() | rows, st.integers(32, 64))
def test_in_sequence_each_group_stands_alone_in_its_stage_and_is_given_all_before_it(
    asked: Schema, read: ReadOptions, most: int | None, width: int
) -> None:
    order = [name for name, _ in asked.questions]
    limits = replace(CAPABILITIES, widths=(width,))
    compiled = compile_plan(asked, replace(read, rows=most, sequential=True), limits, TOY)
    before: set[str] = set()
    for stage in compiled.stages:
        (group,) = stage
        assert sorted(before, key=order.index) == given_to(group)
        before.update(group.identifiers)


@quick
@given(staged_schemas(), options)
def test_in_sequence_nothing_is_asked_before_what_it_needs_and_conditions_stay(
    asked: Schema, read: ReadOptions
) -> None:
    by_name = dict(asked.questions)
    for group in compile_plan(asked, replace(read, sequential=True), CAPABILITIES, TOY).groups:
        for name in group.identifiers:
            assert set(conditions.given(by_name, name)) <= set(given_to(group))
            assert by_name[name].conditions.ask_if == group.condition


@quick
@given(staged_schemas(), options, rows, st.booleans())
def test_no_shared_group_takes_more_rows_than_it_may(
    asked: Schema, read: ReadOptions, most: int, sequential: bool
) -> None:
    compiled = compile_plan(asked, replace(read, rows=most, sequential=sequential), CAPABILITIES, TOY)
    for group in compiled.groups:
        assert len(group.identifiers) == 1 or taken(group) <= most


@quick
@given(staged_schemas(), options)
def test_as_many_rows_as_the_widest_canvas_has_change_no_group(asked: Schema, read: ReadOptions) -> None:
    without, with_all = (
        compile_plan(asked, replace(read, rows=most), CAPABILITIES, TOY) for most in (None, WIDTHS[-1])
    )
    assert without.stages == with_all.stages


@quick
@given(schemas(most=2, ids=plain_ids), options)
def test_a_group_by_itself_is_read_in_sequence_as_it_is_without(asked: Schema, read: ReadOptions) -> None:
    one = Schema(asked.questions[:1])
    without, sequential = (
        compile_plan(one, replace(read, sequential=each), CAPABILITIES, TOY) for each in (False, True)
    )
    assert without.stages == sequential.stages


@pytest.mark.parametrize(
    ("most", "expected"),
    [(9, ["a", "b", "c", "d", "e", "f"]), (18, ["ab", "cd", "ef"]), (26, ["abc", "def"]), (64, ["abcdef"])],
)
def test_rows_part_questions_and_canvases_keep_their_widths(most: int, expected: list[str]) -> None:
    """A question takes eight tokens, the braces and the turn close two more."""
    compiled = plan(SIX, ReadOptions(keys="neutral", rows=most))
    assert [expected] == grouped(compiled)
    assert {group.canvas.width for group in compiled.groups} <= set(WIDTHS)


def test_a_question_that_takes_more_rows_than_there_may_be_is_read_alone() -> None:
    asked = schema(a=YES_NO, x_long_id_that_takes_many_rows=YES_NO, b=YES_NO)
    compiled = plan(asked, ReadOptions(keys="named", rows=18))
    assert [["ab", "x_long_id_that_takes_many_rows"]] == grouped(compiled)


def test_canvases_that_questions_fill_become_stages() -> None:
    narrow = Capabilities((26,), None, None)
    assert [["abc", "def"]] == grouped(plan(SIX, ReadOptions(keys="neutral"), narrow))
    roomy = Capabilities((27,), None, None)
    sequential = plan(SIX, ReadOptions(keys="neutral", sequential=True), roomy)
    assert [["abc"], ["def"]] == grouped(sequential)
    assert [[], ["a", "b", "c"]] == [given_to(group) for group in sequential.groups]


def test_what_no_longer_fits_behind_answers_takes_turns_too() -> None:
    """The comma before the fourth question takes the token that the sixth one needs."""
    narrow = Capabilities((26,), None, None)
    sequential = plan(SIX, ReadOptions(keys="neutral", sequential=True), narrow)
    assert [["abc"], ["de"], ["f"]] == grouped(sequential)
    assert ["a", "b", "c", "d", "e"] == given_to(sequential.groups[-1])


def test_a_later_canvas_of_a_sequence_goes_on_from_the_answers_before_it() -> None:
    read = ReadOptions(keys="neutral", rows=18, sequential=True)
    yes, no = (requests_of(job_of(SIX, "c", read, answers={"a": answer}))[0].prompt.ids for answer in (0, 1))
    opened = [TOY.text(ids).rpartition('{"')[2] for ids in (yes, no)]
    assert ['a":"yes","b":"yes', 'a":"no","b":"yes'] == [text.partition('","c')[0] for text in opened]


def test_questions_apart_are_read_one_after_the_other_in_sequence() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="all", sequential=True))
    assert [["urgent"], ["team"], ["severity"]] == grouped(compiled)
    assert ["urgent", "team"] == given_to(compiled.groups[-1])


def test_a_question_that_is_alone_takes_its_turn_in_the_sequence() -> None:
    alone = replace(YES_NO, conditions=Conditions(alone=True))
    compiled = plan(schema(a=YES_NO, b=alone, c=YES_NO), ReadOptions(sequential=True))
    assert [["b"], ["ac"]] == grouped(compiled)
    assert ["b"] == given_to(compiled.groups[-1])


def test_more_questions_than_can_be_planned_in_sequence_are_refused() -> None:
    asked = Schema(tuple((f"q{index}", Noul("Is it?")) for index in range(MAX_IN_SEQUENCE + 1)))
    with pytest.raises(InvalidRequest, match=r"sequential may be asked for up to 64 questions, got 65\."):
        plan(asked, ReadOptions(sequential=True))
