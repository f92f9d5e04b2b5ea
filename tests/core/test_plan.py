"""The plan: every question in one canvas, in order, within width and id cap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.labels import choose_labels
from structured_server.core.plan import (
    Capabilities,
    Group,
    Isolate,
    Plan,
    ReadOptions,
    Scaffold,
    compile_plan,
    located,
)
from structured_server.core.prompt import Asked
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.reads import derive_seed
from structured_server.core.template import Keys, TemplateStyle
from structured_server.errors import InvalidQuestion, InvalidRequest
from tests.core.strategies import identifiers, plain_ids, questions, quick, schemas
from tests.core.synthetic import CAPABILITIES, WIDTHS, job, plan, schema
from tests.toy import LABELS, ToyTokenizer

YES_NO = Noul("Is it?")
TEAM = Choice("Whose is it?", (("compute", None), ("networking", None), ("billing", None)))
BAD = Score("How bad?", ("none", "low", "high"))
NEUTRAL = ReadOptions(keys="neutral")

options = st.builds(
    ReadOptions,
    layout=st.sampled_from(["schema_first", "document_first"]),
    template=st.sampled_from(["json", "lines"]),
    keys=st.sampled_from(["auto", "neutral"]),
    isolate=st.sampled_from(["none", "noul", "all", "auto"]),
    scaffold=st.sampled_from(["prompt", "canvas"]),
)
capabilities = st.builds(
    Capabilities,
    widths=st.sampled_from([WIDTHS, (64,), (32, 64), (48, 256)]),
    max_label_ids=st.none() | st.integers(20, 128),
    max_model_len=st.none(),
)
TOY = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"], scaffold=True)


def grouped(compiled: Plan) -> list[str]:
    """Return the ids of each group in one word."""
    return ["".join(group.identifiers) for group in compiled.groups]


def said(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return what stands in a group's canvas, without the questions' ids."""
    return [(each.key, each.labels) for each in group.asked]


@quick
@given(schemas(), options, capabilities)
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
@given(schemas(), options, capabilities)
def test_questions_keep_their_order_within_a_group(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    order = [name for name, _ in asked.questions]
    for group in compile_plan(asked, read, limits, TOY).groups:
        assert sorted(group.identifiers, key=order.index) == list(group.identifiers)
        assert len(group.asked) == len(group.canvas.slots)


@quick
@given(schemas(), options, capabilities)
def test_no_group_exceeds_what_one_read_holds(asked: Schema, read: ReadOptions, limits: Capabilities) -> None:
    for group in compile_plan(asked, read, limits, TOY).groups:
        assert group.canvas.width in limits.widths
        assert limits.max_label_ids is None or len(group.canvas.label_ids) <= limits.max_label_ids


@quick
@given(schemas(), options, capabilities)
def test_a_groups_labels_are_those_of_its_questions(
    asked: Schema, read: ReadOptions, limits: Capabilities
) -> None:
    for group in compile_plan(asked, read, limits, TOY).groups:
        taken: set[str] = set()
        for each, slot in zip(group.asked, group.canvas.slots, strict=True):
            assert choose_labels(TOY, read.template, each.key, each.question, taken) == each.labels
            texts = [TOY.token_text(ids[0]).strip() for ids in slot.options]
            assert list(each.labels) == texts
            taken |= set(each.labels)


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


def test_a_group_is_cut_where_its_label_ids_pass_the_cap() -> None:
    """Six labels of TEAM and BAD each, spellings with a space included; yes/no questions share four."""
    asked = schema(a=TEAM, b=BAD, c=YES_NO, d=YES_NO)
    for cap, expected in ((16, ["abcd"]), (15, ["ab", "cd"]), (11, ["a", "bcd"]), (9, ["a", "b", "cd"])):
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
            schema(a=YES_NO),
            ReadOptions(),
            Capabilities((10,), 3, None),
            ("questions", "a", "criteria"),
            "has 2 options, which are 4 label ids; one read holds 3.",
            "Use fewer options, or ask in two steps.",
        ),
        (
            schema(a=YES_NO, b=TEAM),
            ReadOptions(),
            Capabilities(WIDTHS, 5, None),
            ("questions", "b", "criteria"),
            "has 3 options, which are 6 label ids; one read holds 5.",
            "Use fewer options, or ask in two steps.",
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
    with pytest.raises(InvalidQuestion) as refused:
        plan(asked, read, limits)
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
