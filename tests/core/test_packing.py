"""Packing: the fewest canvases that first fit finds, and nothing passed over that would have fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.canvas import build_canvas
from structured_server.core.conditions import Conditions
from structured_server.core.labels import choose_labels
from structured_server.core.plan import OPEN_CANVASES, Capabilities, Plan, ReadOptions, Scaffold, compile_plan
from structured_server.core.questions import Choice, Noul, Question, Schema
from structured_server.core.template import choose_keys
from tests.core.strategies import plain_ids, quick, schemas
from tests.core.synthetic import CAPABILITIES, plan, schema
from tests.toy import LABELS, ToyTokenizer

# Every letter and pair has a spelling with a space, so that all options have two label ids.
PAIRS = [*ascii_uppercase, *map("".join, product("ABCDEF", ascii_uppercase))]
SPACED = ToyTokenizer([*LABELS, *PAIRS], scaffold=True)
NEUTRAL = ReadOptions(keys="neutral")
YES_NO = Noul("Is it?")

Entries = Sequence[tuple[str, Question]]


def shelves(count: int) -> Choice:
    """Return a choice whose options have two label ids each."""
    return Choice(None, tuple((f"shelf {index}", None) for index in range(count)))


def sizes(compiled: Plan) -> list[list[int]]:
    """Return how many options the questions of each group have."""
    return [[len(each.labels) for each in group.asked] for group in compiled.groups]


def fits(entries: Entries, read: ReadOptions, limits: Capabilities) -> bool:
    """Try whether one read holds the questions."""
    taken = {option.word for _, question in entries for option in question.options}
    labelled = []
    keys = choose_keys([name for name, _ in entries], read.keys)
    for key, (_, question) in zip(keys, entries, strict=True):
        labels = choose_labels(SPACED, read.template, key, question, taken)
        taken |= set(labels)
        labelled.append((key, labels))
    canvas = build_canvas(SPACED, read.template, labelled, limits.widths, scaffold=read.scaffold == "canvas")
    cap = limits.max_label_ids
    return canvas is not None and (cap is None or len(canvas.label_ids) <= cap)


def next_fit(entries: Entries, read: ReadOptions, limits: Capabilities) -> int:
    """Count the canvases of a packing that looks at the last one only."""
    canvases: list[list[tuple[str, Question]]] = []
    for entry in entries:
        if canvases and fits([*canvases[-1], entry], read, limits):
            canvases[-1].append(entry)
        else:
            canvases.append([entry])
    return len(canvases)


def test_first_fit_takes_fewer_canvases_than_next_fit() -> None:
    """A choice of 60 options has 120 label ids, one of 10 has 20; a read may ask for 128."""
    asked = schema(a=shelves(60), b=shelves(10), c=shelves(60), d=shelves(10))
    assert [[60], [10, 10], [60]] == sizes(plan(asked, tokenizer=SPACED))
    assert 4 == next_fit(asked.questions, ReadOptions(), CAPABILITIES)


packings = st.builds(
    ReadOptions,
    template=st.sampled_from(["json", "lines"]),
    keys=st.just("neutral"),
    scaffold=st.sampled_from(["prompt", "canvas"]),
)
limited = st.builds(
    Capabilities,
    widths=st.sampled_from([(32,), (32, 48), (64,)]),
    max_label_ids=st.none() | st.integers(16, 40),
    max_model_len=st.none(),
)


@quick
@given(schemas(ids=plain_ids, most=8), packings, limited)
def test_no_question_would_have_fitted_into_an_earlier_canvas(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    """What is known beforehand of a canvas that looks full never keeps out a question that fits."""
    by_name = dict(asked.questions)
    order = list(by_name)
    groups = compile_plan(asked, read, limits, SPACED).groups
    for index, group in enumerate(groups):
        for name in group.identifiers:
            for earlier in groups[:index]:
                members = [n for n in earlier.identifiers if order.index(n) < order.index(name)]
                assert not members or not fits([(n, by_name[n]) for n in (*members, name)], read, limits)


@quick
@given(schemas(ids=plain_ids, most=8), packings, limited)
def test_first_fit_never_takes_more_canvases_than_next_fit(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    assert len(compile_plan(asked, read, limits, SPACED).groups) <= next_fit(asked.questions, read, limits)


@pytest.mark.parametrize(
    ("restate", "scaffold", "width"), [(False, "prompt", 17), (False, "canvas", 26), (True, "canvas", 26)]
)
def test_questions_of_a_later_stage_fill_a_canvas_to_its_last_token(
    restate: bool, scaffold: Scaffold, width: int
) -> None:
    """Four lines take 16 tokens, 17 behind answers. They must fit with the scaffold too, without answers."""
    later = replace(YES_NO, conditions=Conditions(("a",)))
    read = ReadOptions(template="lines", restate=restate, scaffold=scaffold)
    asked = schema(a=YES_NO, b=later, c=later, d=later, e=later)
    for widest, expected in ((width, [1, 1]), (width - 1, [1, 2])):
        compiled = plan(asked, read, Capabilities((widest,), None, None), SPACED)
        assert expected == [len(stage) for stage in compiled.stages]


def test_a_wide_choice_is_read_alone_and_leaves_the_others_together() -> None:
    asked = schema(a=YES_NO, b=shelves(100), c=YES_NO, d=shelves(65))
    assert [[2, 2], [100], [65]] == sizes(plan(asked, tokenizer=SPACED))


def test_without_a_cap_a_wide_choice_shares_a_canvas() -> None:
    asked = schema(a=YES_NO, b=shelves(100))
    assert [[2, 100]] == sizes(plan(asked, capabilities=Capabilities((64,), None, None), tokenizer=SPACED))


def test_four_hundred_questions_are_packed_in_the_fewest_canvases_there_can_be() -> None:
    """In lines of neutral keys of one letter a question takes four tokens, sixteen to a canvas of 64."""
    asked = Schema(tuple((f"q{index}", YES_NO) for index in range(400)))
    compiled = compile_plan(asked, ReadOptions(template="lines"), CAPABILITIES, SPACED)
    assert 25 == len(compiled.groups)
    assert [name for name, _ in asked.questions] == [n for g in compiled.groups for n in g.identifiers]


def test_only_the_latest_canvases_are_tried() -> None:
    """A yes/no question behind seventeen choices that leave room for it joins the second of them."""
    teams = [(f"t{index}", shelves(60)) for index in range(OPEN_CANVASES + 1)]
    compiled = compile_plan(Schema((*teams, ("last", YES_NO))), NEUTRAL, CAPABILITIES, SPACED)
    assert ("t1", "last") == compiled.groups[1].identifiers
    assert OPEN_CANVASES + 1 == len(compiled.groups)


def test_only_questions_with_the_same_answers_before_them_share_a_canvas() -> None:
    def after(*names: str, **ask_if: str) -> Noul:
        wanted = tuple((name, (answer,)) for name, answer in ask_if.items())
        return replace(YES_NO, conditions=Conditions(names, wanted))

    asked = schema(
        a=YES_NO,
        b=YES_NO,
        c=after("a"),
        d=after("b"),
        e=after("a"),
        f=after(a="true"),
        g=after("a", a="true"),
        h=after(a="false"),
        i=replace(after("a"), conditions=Conditions(("a",), alone=True)),
    )
    compiled = plan(asked, tokenizer=SPACED)
    assert [["ab"], ["i", "ce", "d", "fg", "h"]] == [
        ["".join(group.identifiers) for group in stage] for stage in compiled.stages
    ]
