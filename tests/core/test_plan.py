"""The plan: every question in one canvas, in order, within width and id cap."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from string import ascii_uppercase

from hypothesis import given
from hypothesis import strategies as st

from structured_server.core import conditions
from structured_server.core.labels import choose_labels
from structured_server.core.plan import (
    Capabilities,
    Group,
    ReadOptions,
    compile_plan,
)
from structured_server.core.questions import Question, Schema
from structured_server.core.reads import derive_seed
from tests.core.strategies import identifiers, plain_ids, questions, quick, schemas, staged_schemas
from tests.core.synthetic import CAPABILITIES, WIDTHS, job
from tests.toy import LABELS, ToyTokenizer

options = st.builds(
    ReadOptions,
    layout=st.sampled_from(["schema_first", "document_first"]),
    template=st.sampled_from(["json", "lines"]),
    keys=st.sampled_from(["auto", "neutral"]),
    isolate=st.sampled_from(["none", "noul", "all", "auto"]),
    scaffold=st.sampled_from(["prompt", "canvas"]),
    restate=st.booleans(),
)
capabilities = st.builds(
    Capabilities,
    widths=st.sampled_from([WIDTHS, (64,), (32, 64), (48, 256)]),
    max_label_ids=st.none() | st.integers(8, 128),
    max_model_len=st.none(),
)
TOY = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"], scaffold=True)
ROOMY = ToyTokenizer([*LABELS, *ascii_uppercase, *map("".join, product("AB", ascii_uppercase))][:-6])


def said(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return what stands in a group's canvas, without the questions' ids."""
    return [(each.key, each.labels) for each in group.asked]


@quick
@given(staged_schemas(), options, capabilities)
def test_every_question_is_in_exactly_one_group(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    compiled = compile_plan(asked, read, limits, TOY)
    placed = [name for group in compiled.groups for name in group.identifiers]
    assert sorted(name for name, _ in asked.questions) == sorted(placed)
    by_name = dict(asked.questions)
    for group in compiled.groups:
        assert [by_name[name] for name in group.identifiers] == [each.question for each in group.asked]


@quick
@given(staged_schemas(), options, capabilities)
def test_questions_keep_their_order_within_a_group(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    order = [name for name, _ in asked.questions]
    for group in compile_plan(asked, read, limits, TOY).groups:
        assert sorted(group.identifiers, key=order.index) == list(group.identifiers)
        assert len(group.asked) == len(group.canvas.slots)


@quick
@given(staged_schemas(), options, capabilities)
def test_no_group_exceeds_what_one_read_holds_but_a_wide_choice_alone(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    cap = limits.max_label_ids
    for group in compile_plan(asked, read, limits, TOY).groups:
        assert group.canvas.width in limits.widths
        assert cap is None or len(group.canvas.label_ids) <= cap or len(group.asked) == 1


@quick
@given(staged_schemas(), options, capabilities)
def test_groups_come_after_all_that_they_need(asked: Schema, read: ReadOptions, limits: Capabilities) -> None:
    by_name = dict(asked.questions)
    compiled = compile_plan(asked, read, limits, TOY)
    before: set[str] = set()
    for stage in compiled.stages:
        for group in stage:
            given_names = tuple(name for name, _ in group.given)
            assert before.issuperset(given_names)
            assert len(given_names if not read.restate else ()) == len(group.canvas.opening.labels)
            for name in group.identifiers:
                assert conditions.given(by_name, name) == given_names
                assert by_name[name].conditions.ask_if == group.condition
        before.update(name for group in stage for name in group.identifiers)
    assert tuple(group for stage in compiled.stages for group in stage) == compiled.groups
    assert asked == compiled.schema


@quick
@given(staged_schemas(), options, capabilities)
def test_who_wants_to_be_alone_is(asked: Schema, read: ReadOptions, limits: Capabilities) -> None:
    for group in compile_plan(asked, read, limits, TOY).groups:
        if any(each.question.conditions.alone for each in group.asked):
            assert 1 == len(group.asked)


@quick
@given(staged_schemas(), options, capabilities)
def test_the_options_of_a_question_share_no_label_id(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    for group in compile_plan(asked, read, limits, TOY).groups:
        for each, slot in zip(group.asked, group.canvas.slots, strict=True):
            ids = [token_id for option in slot.options for token_id in option]
            assert len(ids) == len(set(ids))
            assert len(each.question.options) == len(set(each.labels)) == len(slot.options)


@quick
@given(staged_schemas(most=4), options, capabilities)
def test_letters_are_never_label_ids_of_another_question_in_sight(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    """Four questions of up to ten options have at most 40 letters; this tokenizer has over 60."""
    for group in compile_plan(asked, read, limits, ROOMY).groups:
        all_asked = [*(each for _, each in group.given), *group.asked]
        for each in all_asked:
            others = {label for other in all_asked if other is not each for label in other.labels}
            assert not each.aliased or others.isdisjoint(each.labels)


@quick
@given(staged_schemas(), options, capabilities)
def test_a_groups_labels_are_those_of_its_questions(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    for group in compile_plan(asked, read, limits, TOY).groups:
        before = [each for _, each in group.given]
        taken = {option.word for each in (*before, *group.asked) for option in each.question.options}
        for each in (*before, *group.asked):
            assert choose_labels(TOY, read.template, each.key, each.question, taken) == each.labels
            taken |= set(each.labels)
        for each, slot in zip(group.asked, group.canvas.slots, strict=True):
            texts = [TOY.token_text(ids[0]).strip() for ids in slot.options]
            assert list(each.labels) == texts


@quick
@given(schemas(ids=plain_ids), options, capabilities, st.data())
def test_renaming_questions_with_neutral_keys_changes_nothing_but_their_names(
    asked: Schema, read: ReadOptions, limits: Capabilities, data: st.DataObject
) -> None:
    count = len(asked)
    names = data.draw(st.lists(identifiers, min_size=count, max_size=count, unique=True))
    renamed = Schema(tuple((name, q) for name, (_, q) in zip(names, asked.questions, strict=True)))
    read = replace(read, keys="neutral")
    before, after = (compile_plan(one, read, limits, TOY) for one in (asked, renamed))
    assert [group.content for group in before.groups] == [group.content for group in after.groups]
    assert [said(group) for group in before.groups] == [said(group) for group in after.groups]
    assert [group.canvas for group in before.groups] == [group.canvas for group in after.groups]


@quick
@given(schemas(most=3), questions, st.booleans())
def test_a_question_read_apart_does_not_notice_another(asked: Schema, added: Question, first: bool) -> None:
    """Its read is the same, byte for byte, wherever and whatever the other question is."""
    entries = (("new question", added), *asked.questions) if first else (*asked.questions, ("new", added))
    read = ReadOptions(isolate="all", keys="neutral")
    alone, together = (compile_plan(one, read, CAPABILITIES, TOY) for one in (asked, Schema(entries)))
    after = {group.identifiers: group for group in together.groups}
    for group in alone.groups:
        same = after[group.identifiers]
        seeds = [derive_seed(7, "the state", each.content) for each in (group, same)]
        assert job(group, seed=seeds[0]).request(2) == job(same, seed=seeds[1]).request(2)
