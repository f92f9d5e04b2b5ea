"""Grouping by example: which questions share a canvas, how they are named there, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.conditions import Conditions
from structured_server.core.plan import (
    Capabilities,
    Group,
    Isolate,
    Plan,
    ReadOptions,
    Scaffold,
    located,
)
from structured_server.core.prompt import Asked
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.template import Keys, TemplateStyle
from structured_server.errors import InvalidQuestion, InvalidRequest
from tests.core.strategies import questions, quick
from tests.core.synthetic import plan, schema
from tests.toy import LABELS, ToyTokenizer

YES_NO = Noul("Is it?")
TEAM = Choice("Whose is it?", (("compute", None), ("networking", None), ("billing", None)))
BAD = Score("How bad?", ("none", "low", "high"))
NEUTRAL = ReadOptions(keys="neutral")


def grouped(compiled: Plan) -> list[str]:
    """Return the ids of each group in one word."""
    return ["".join(group.identifiers) for group in compiled.groups]


def said(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return what stands in a group's canvas, without the questions' ids."""
    return [(each.key, each.labels) for each in group.asked]


def test_questions_that_fit_share_a_canvas() -> None:
    assert ["abc"] == grouped(plan(schema(a=YES_NO, b=TEAM, c=BAD)))


def test_a_group_is_as_large_as_the_canvas_allows() -> None:
    """A question takes eight tokens of `{"a":"yes","b":"yes"}`, the braces and the turn close two more."""
    asked = schema(**dict.fromkeys("abcdef", YES_NO))
    for width, expected in (
        (10, ["a", "b", "c", "d", "e", "f"]),
        (26, ["abc", "def"]),
        (25, ["ab", "cd", "ef"]),
    ):
        assert expected == grouped(plan(asked, NEUTRAL, Capabilities((width,), None, None)))


def test_each_group_takes_its_own_narrowest_width() -> None:
    asked = schema(**dict.fromkeys("abcde", YES_NO))
    compiled = plan(asked, NEUTRAL, Capabilities((16, 32), None, None))
    assert [("abc", 32), ("de", 32)] == [
        ("".join(group.identifiers), group.canvas.width) for group in compiled.groups
    ]
    assert [16] == [group.canvas.width for group in plan(schema(a=YES_NO)).groups]


def test_a_question_goes_to_the_first_group_whose_label_ids_stay_within_the_cap() -> None:
    """Six labels of TEAM and BAD each, spellings with a space included; yes/no questions share four."""
    asked = schema(a=TEAM, b=BAD, c=YES_NO, d=YES_NO)
    for cap, expected in ((16, ["abcd"]), (15, ["ab", "cd"]), (11, ["acd", "b"]), (9, ["a", "b", "cd"])):
        assert expected == grouped(plan(asked, capabilities=Capabilities((64,), cap, None)))


@pytest.mark.parametrize(
    ("isolate", "expected", "settled"),
    [
        ("none", ["abcd"], "none"),
        ("noul", ["a", "c", "bd"], "noul"),
        ("all", ["a", "b", "c", "d"], "all"),
        ("auto", ["abcd"], "none"),
    ],
)
def test_isolation_reads_the_named_questions_apart(
    isolate: Isolate, expected: list[str], settled: str
) -> None:
    compiled = plan(schema(a=YES_NO, b=TEAM, c=YES_NO, d=BAD), ReadOptions(isolate=isolate))
    assert (expected, settled) == (grouped(compiled), compiled.isolated)


@pytest.mark.parametrize(
    ("kinds", "settled"),
    [
        ("n", "none"),
        ("nn", "noul"),
        ("nc", "none"),
        ("nnc", "noul"),
        ("nnn", "noul"),
        ("ncs", "none"),
        ("nnnn", "none"),
        ("nncs", "none"),
    ],
)
def test_auto_isolates_nouls_where_two_or_three_questions_hold_two(kinds: str, settled: str) -> None:
    of_kind: dict[str, Question] = {"n": YES_NO, "c": TEAM, "s": BAD}
    asked = Schema(tuple((f"q{index}", of_kind[kind]) for index, kind in enumerate(kinds)))
    assert settled == plan(asked, ReadOptions(isolate="auto")).isolated


def test_a_plan_of_nothing_but_isolated_nouls_has_no_empty_group() -> None:
    assert ["a", "b"] == grouped(plan(schema(a=YES_NO, b=YES_NO), ReadOptions(isolate="noul")))


@pytest.mark.parametrize(
    ("keys", "names", "expected"),
    [
        ("auto", ("urgent", "team"), ["urgent", "team"]),
        ("auto", ("urgent", "team-1"), ["a", "b"]),
        ("neutral", ("urgent", "team"), ["a", "b"]),
        ("named", ("urgent", "team-1"), ["urgent", "team-1"]),
    ],
)
def test_questions_are_named_as_asked(keys: Keys, names: tuple[str, str], expected: list[str]) -> None:
    [group] = plan(schema(**dict.fromkeys(names, YES_NO)), ReadOptions(keys=keys)).groups
    assert expected == [each.key for each in group.asked]
    assert names == group.identifiers


def test_an_id_that_cannot_name_a_question_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan(schema(**{'a"': YES_NO}), ReadOptions(keys="named"))
    assert ("questions", 'a"') == refused.value.path


def test_neighbours_get_different_letters() -> None:
    long = Choice(None, (("x-ray", None), ("y-axis", None)))
    levels = Score(None, ("quite bad", "very bad"))
    [group] = plan(
        schema(a=long, b=long, c=levels, d=levels), capabilities=Capabilities((64,), 99, None)
    ).groups
    assert [("A", "B"), ("C", "D"), ("0", "1"), ("E", "F")] == [each.labels for each in group.asked]


@pytest.mark.parametrize("first", [False, True])
def test_letters_avoid_a_neighbours_own_words_and_aliases_wherever_it_stands(first: bool) -> None:
    long = Choice(None, (("x-ray", None), ("y-axis", None)))
    grade = Choice(None, (("A", None), ("D", None)))
    mapped = Noul("?", aliases=(("true", "B"),))
    entries: list[tuple[str, Question]] = [("g", grade), ("m", mapped)]
    [group] = plan(Schema((*entries, ("l", long)) if first else (("l", long), *entries))).groups
    labels = {name: each.labels for name, each in zip(group.identifiers, group.asked, strict=True)}
    assert {"g": ("A", "D"), "m": ("B", "no"), "l": ("C", "E")} == labels


@pytest.mark.parametrize(
    ("template", "scaffold", "width"),
    [("json", "prompt", 18), ("lines", "prompt", 8), ("json", "canvas", 28)],
)
def test_options_decide_the_canvas(template: TemplateStyle, scaffold: Scaffold, width: int) -> None:
    """In lines, four tokens a question are as narrow as it gets: a, colon, yes, the end of line or turn."""
    tokenizer = ToyTokenizer([*LABELS, "A"], scaffold=True)
    read = ReadOptions(template=template, scaffold=scaffold)
    asked = schema(a=YES_NO, b=YES_NO)
    [group] = plan(asked, read, Capabilities((width - 1, width), None, None), tokenizer).groups
    assert width == group.canvas.width


@pytest.mark.parametrize(
    ("asked", "read", "limits", "path", "message", "hint"),
    [
        (
            schema(**{"an id that takes a lot of room": YES_NO}),
            ReadOptions(keys="named"),
            Capabilities((16, 32), None, None),
            ("questions", "an id that takes a lot of room"),
            "takes 39 canvas tokens even alone; the widest canvas has 32.",
            "Shorten the id, or set read.keys to neutral.",
        ),
        (
            schema(a=YES_NO, b=TEAM),
            ReadOptions(),
            Capabilities((9,), 3, None),
            ("questions", "a"),
            "takes 10 canvas tokens even alone; the widest canvas has 9.",
            "Shorten the id, or set read.keys to neutral.",
        ),
        (
            schema(a=YES_NO),
            ReadOptions(),
            Capabilities((3,), None, None),
            ("questions", "a"),
            "takes 10 canvas tokens even alone; the widest canvas has 3.",
            "Shorten the id, or set read.keys to neutral.",
        ),
        (
            schema(a=YES_NO, b=replace(YES_NO, conditions=Conditions(("a",)))),
            ReadOptions(),
            Capabilities((10,), None, None),
            ("questions", "b"),
            "takes 11 canvas tokens even alone; the widest canvas has 10.",
            "Shorten the id, or set read.keys to neutral.",
        ),
        (
            schema(a=YES_NO, b=replace(YES_NO, conditions=Conditions(("a",)))),
            ReadOptions(template="lines", scaffold="canvas"),
            Capabilities((13,), None, None),
            ("questions", "a"),
            "takes 15 canvas tokens even alone; the widest canvas has 13.",
            "Shorten the id, or set read.keys to neutral.",
        ),
    ],
)
def test_a_question_too_big_even_alone_is_told_its_size_and_the_limit(
    asked: Schema,
    read: ReadOptions,
    limits: Capabilities,
    path: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    tokenizer = ToyTokenizer(scaffold=True)
    with pytest.raises(InvalidQuestion) as refused:
        plan(asked, read, limits, tokenizer)
    assert (path, message, hint) == (refused.value.path, refused.value.predicate, refused.value.hint)


def test_a_question_without_labels_is_named() -> None:
    many = Choice(None, tuple((f"shelf {n}", None) for n in range(40)))
    with pytest.raises(InvalidQuestion) as refused:
        plan(schema(fine=YES_NO, shelves=many))
    assert ("questions", "shelves", "criteria") == refused.value.path
    assert "has 40 options, more than this tokenizer has labels for." == refused.value.predicate


def test_an_alias_that_is_no_token_is_named_with_its_question() -> None:
    with pytest.raises(InvalidQuestion) as refused:
        plan(schema(q=Noul("?", aliases=(("true", "yep"),))))
    assert ("questions", "q", "aliases", "true") == refused.value.path
    assert refused.value.message.startswith("questions.q.aliases.true is no single token")
    assert "Use a short common word or a letter." == refused.value.hint


def test_a_located_error_keeps_what_it_says() -> None:
    error = located(InvalidQuestion("is wrong.", path=("criteria", 3), hint="Mend it."), "q")
    assert ("questions.q.criteria.3 is wrong.", "Mend it.") == (error.message, error.hint)


def content(question: Question) -> str:
    [group] = plan(schema(q=question), NEUTRAL).groups
    return group.content


@pytest.mark.parametrize(
    "other",
    [
        Noul("Is it not?"),
        Noul("Is it?", true="it is"),
        Noul("Is it?", false="it is"),
        Noul("Is it?", aliases=(("true", "Y"), ("false", "N"))),
        Choice("Is it?", (("yes", None), ("no", None))),
        Score("Is it?", ("yes", "no")),
    ],
    ids=str,
)
def test_noise_depends_on_what_the_questions_say(other: Question) -> None:
    assert content(YES_NO) != content(other)


@pytest.mark.parametrize(
    "other", [Noul("Is it?", threshold=0.9), Noul("Is it?", limits=Limits(min_label_mass=0.1))], ids=str
)
def test_noise_does_not_depend_on_what_is_done_with_the_answer(other: Question) -> None:
    assert content(YES_NO) == content(other)


@quick
@given(st.lists(questions, min_size=2, max_size=2))
def test_other_questions_have_other_content(pair: list[Question]) -> None:
    one, other = pair
    contents = [
        Group((), (Asked("a", q, ()),), plan(schema(q=YES_NO)).groups[0].canvas).content for q in pair
    ]
    assert (contents[0] == contents[1]) == (
        (one.kind, one.instructions, one.options) == (other.kind, other.instructions, other.options)
    )


@pytest.mark.parametrize("keys", ["A", "a", "0"])
def test_an_id_may_be_one_of_the_labels(keys: str) -> None:
    """Keys and labels may be the same word: slots are found by their place, never by their text."""
    asked = schema(**{keys: Choice(None, ((keys, None), ("x-ray", None)))})
    [group] = plan(asked, ReadOptions(keys="named")).groups
    assert len(f'{{"{keys}":"') == group.canvas.positions[0]


def test_an_option_may_be_the_name_of_a_question() -> None:
    names = Choice(None, (("a", None), ("b", None)))
    [group] = plan(schema(a=names, b=names)).groups
    assert [("a", ("a", "b")), ("b", ("a", "b"))] == said(group)
    assert (len('{"a":"'), len('{"a":"a","b":"')) == group.canvas.positions


def test_a_question_that_cannot_stand_behind_answers_is_told_with_a_way_out() -> None:
    asked = schema(a=YES_NO, b=replace(YES_NO, conditions=Conditions(("a",))))
    swallowing = ToyTokenizer([*LABELS, 'yes",'])
    with pytest.raises(InvalidQuestion) as refused:
        plan(asked, tokenizer=swallowing)
    assert ("questions", "b", "depends_on") == refused.value.path
    assert "cannot stand behind the answers that it depends on" in refused.value.predicate
    assert "Set read.template to lines." == refused.value.hint
    assert ["a", "b"] == grouped(plan(asked, ReadOptions(template="lines"), tokenizer=swallowing))
    assert ["a", "b"] == grouped(plan(asked, ReadOptions(restate=True), tokenizer=swallowing))
