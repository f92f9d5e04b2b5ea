"""The canvas: slots stand where the labels stand, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.canvas import NO_OPENING, Canvas, Slot, build_canvas
from structured_server.core.labels import choose_labels
from structured_server.core.questions import Question
from structured_server.core.template import TemplateStyle, render_answer
from tests.core.strategies import questions, quick
from tests.core.synthetic import WIDTHS
from tests.toy import LABELS, ToyTokenizer

TOY = ToyTokenizer()
SCAFFOLDED = ToyTokenizer(scaffold=True)
YES_NO = ("yes", "no")
Labelled = Sequence[tuple[str, Sequence[str]]]


def build(
    asked: Labelled,
    widths: Sequence[int] = WIDTHS,
    *,
    tokenizer: ToyTokenizer = TOY,
    style: TemplateStyle = "json",
    scaffold: bool = False,
) -> Canvas | None:
    return build_canvas(tokenizer, style, asked, widths, scaffold=scaffold)


def built(
    asked: Labelled,
    widths: Sequence[int] = WIDTHS,
    *,
    tokenizer: ToyTokenizer = TOY,
    style: TemplateStyle = "json",
    scaffold: bool = False,
) -> Canvas:
    canvas = build(asked, widths, tokenizer=tokenizer, style=style, scaffold=scaffold)
    assert canvas is not None
    return canvas


@quick
@given(
    st.lists(questions, min_size=1, max_size=4),
    st.sampled_from(["json", "lines"]),
    st.booleans(),
)
def test_each_label_stands_in_its_slot_when_the_answer_is_written_with_it(
    asked: list[Question], style: TemplateStyle, scaffold: bool
) -> None:
    tokenizer = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"], scaffold=True)
    labelled = [
        (key, choose_labels(tokenizer, style, key, question))
        for key, question in zip("abcd", asked, strict=False)
    ]
    canvas = built(labelled, (64, 128), tokenizer=tokenizer, style=style, scaffold=scaffold)
    head = tokenizer.scaffold if scaffold else ()
    assert len(labelled) == len(canvas.slots)
    for index, ((key, labels), slot) in enumerate(zip(labelled, canvas.slots, strict=True)):
        for label, ids in zip(labels, slot.options, strict=True):
            pairs = [(other, its_labels[0]) for other, its_labels in labelled]
            pairs[index] = (key, label)
            text = (*head, *tokenizer.encode(render_answer(style, pairs)))
            assert text[: slot.position] == canvas.ids[: slot.position]
            assert text[slot.position + 1 :] == canvas.ids[slot.position + 1 : len(text)]
            assert text[slot.position] in ids
            assert tokenizer.variants(text[slot.position]) == ids


@quick
@given(st.integers(1, 7), st.sampled_from(["json", "lines"]), st.booleans())
def test_the_turn_close_follows_the_answer_and_padding_fills_the_narrowest_width(
    count: int, style: TemplateStyle, scaffold: bool
) -> None:
    widths = tuple(range(16, 129, 16))
    asked = [(key, YES_NO) for key in "abcdefg"[:count]]
    tokenizer = ToyTokenizer([*LABELS, "A"], scaffold=True)
    canvas = built(asked, widths, tokenizer=tokenizer, style=style, scaffold=scaffold)
    head = tokenizer.scaffold if scaffold else ()
    answer = tokenizer.encode(render_answer(style, [(key, "yes") for key, _ in asked]))
    content = (*head, *answer, tokenizer.turn_close)
    assert content == canvas.ids[: len(content)]
    assert {tokenizer.padding} >= set(canvas.ids[len(content) :])
    assert len(content) <= canvas.width < len(content) + 16
    assert canvas.width in widths


@pytest.mark.parametrize(
    ("widths", "expected"),
    [((9,), None), ((10,), 10), ((11,), 11), ((9, 10, 16), 10), ((1, 2, 3), None), ((), None)],
)
def test_ten_tokens_take_the_narrowest_width_that_holds_them(
    widths: tuple[int, ...], expected: int | None
) -> None:
    canvas = build([("a", YES_NO)], widths)  # {"a":"yes"} is nine tokens
    assert expected == (canvas and canvas.width)


def test_a_scaffold_in_the_canvas_shifts_the_slots() -> None:
    plain = built([("a", YES_NO), ("b", YES_NO)], tokenizer=SCAFFOLDED)
    shifted = built([("a", YES_NO), ("b", YES_NO)], tokenizer=SCAFFOLDED, scaffold=True)
    assert SCAFFOLDED.scaffold == shifted.ids[: len(SCAFFOLDED.scaffold)]
    assert tuple(p + len(SCAFFOLDED.scaffold) for p in plain.positions) == shifted.positions


def test_a_model_without_a_scaffold_has_none_in_the_canvas() -> None:
    assert built([("a", YES_NO)]) == built([("a", YES_NO)], scaffold=True)


def test_a_scaffold_that_does_not_fit_is_counted() -> None:
    assert build([("a", YES_NO)], (16,), tokenizer=SCAFFOLDED) is not None
    assert build([("a", YES_NO)], (16,), tokenizer=SCAFFOLDED, scaffold=True) is None


def test_spellings_with_a_space_are_variants_of_their_option() -> None:
    [slot] = built([("a", YES_NO)]).slots
    assert ((16, 17), (18, 19)) == slot.options


def test_the_label_ids_of_a_canvas_are_those_of_all_slots_once_each_and_ascending() -> None:
    canvas = built([("a", ("no", "yes")), ("b", YES_NO), ("c", ("low", "high"))])
    texts = [TOY.token_text(token_id) for token_id in canvas.label_ids]
    assert ["yes", " yes", "no", " no", "low", " low", "high", " high"] == texts
    assert sorted(canvas.label_ids) == list(canvas.label_ids)


@pytest.mark.parametrize(
    ("words", "asked", "why"),
    [
        ([*YES_NO, 'yes",'], [("a", YES_NO), ("b", YES_NO)], "one label swallows what follows"),
        ([*YES_NO, 'yes",', 'no",'], [("a", YES_NO), ("b", YES_NO)], "all labels swallow what follows"),
        ([], [("a", ("rat", "bat", "rap"))], "labels differ at different positions"),
        ([], [("a", ("yes", "maybe"))], "a label is several tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_labels_that_are_no_single_tokens_side_by_side_make_no_canvas(
    words: list[str], asked: Labelled, why: str
) -> None:
    assert why
    assert build(asked, (64,), tokenizer=ToyTokenizer(words)) is None


@pytest.mark.parametrize(
    ("ids", "slots", "message"),
    [
        ((1, 2, 3), (Slot(3, ((5,), (6,))),), "slots at [3] do not fit a canvas of 3"),
        ((1, 2, 3), (Slot(-1, ((5,), (6,))),), "slots at [-1] do not fit a canvas of 3"),
        ((), (Slot(0, ((5,), (6,))),), "slots at [0] do not fit a canvas of 0"),
        (
            (1, 2, 3),
            (Slot(2, ((5,), (6,))), Slot(1, ((5,), (6,)))),
            "slots at [2, 1] do not fit a canvas of 3",
        ),
        (
            (1, 2, 3),
            (Slot(1, ((5,), (6,))), Slot(1, ((7,), (8,)))),
            "slots at [1, 1] do not fit a canvas of 3",
        ),
        ((1, 2, 3), (Slot(1, ((5, 6), (6,))),), "two options of the slot at 1 share a token id"),
        ((1, 2, 3), (Slot(1, ((5, 5), (6,))),), "two options of the slot at 1 share a token id"),
    ],
)
def test_a_canvas_refuses_slots_that_cannot_be(
    ids: tuple[int, ...], slots: tuple[Slot, ...], message: str
) -> None:
    with pytest.raises(ValueError) as refused:
        Canvas(ids, slots)
    assert message == str(refused.value)


def test_two_slots_may_have_the_same_labels() -> None:
    canvas = Canvas((1, 2), (Slot(0, ((5,), (6,))), Slot(1, ((5,), (6,)))))
    assert (5, 6) == canvas.label_ids


@quick
@given(st.lists(questions, min_size=2, max_size=4), st.sampled_from(["json", "lines"]), st.data())
def test_an_opening_and_its_canvas_are_the_joint_answer_cut_in_two(
    asked: list[Question], style: TemplateStyle, data: st.DataObject
) -> None:
    """Whatever was answered, its ids and the canvas's are those of the answer's whole text."""
    tokenizer = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"], scaffold=True)
    labelled = [
        (key, choose_labels(tokenizer, style, key, question))
        for key, question in zip("abcd", asked, strict=False)
    ]
    count = data.draw(st.integers(1, len(asked) - 1))
    canvas = build_canvas(tokenizer, style, labelled, (64, 128), scaffold=True, answered=count)
    assert canvas is not None
    answers = [data.draw(st.integers(0, len(labels) - 1)) for _, labels in labelled]
    text = tokenizer.encode(
        render_answer(style, [(k, labels[a]) for (k, labels), a in zip(labelled, answers, strict=True)])
    )
    opened = canvas.opening.filled(answers[:count])
    assert text[: len(opened)] == opened
    assert tokenizer.token_text(opened[-1]).strip() == labelled[count - 1][1][answers[count - 1]]
    rest = list(canvas.ids)
    for slot, answer in zip(canvas.slots, answers[count:], strict=True):
        assert text[len(opened) + slot.position] in slot.options[answer]
        rest[slot.position] = text[len(opened) + slot.position]
    close = len(text) - len(opened)
    assert (*text[len(opened) :], tokenizer.turn_close) == tuple(rest[: close + 1])
    assert {tokenizer.padding} >= set(rest[close + 1 :])


def test_a_canvas_that_goes_on_from_answers_has_slots_for_the_others_only() -> None:
    canvas = build_canvas(
        SCAFFOLDED, "json", [("a", YES_NO), ("b", YES_NO), ("c", YES_NO)], WIDTHS, scaffold=True, answered=2
    )
    assert canvas is not None
    assert ['{"a":"no","b":"yes', '{"a":"no","b":"no'] == [
        SCAFFOLDED.text(canvas.opening.filled([1, answer])) for answer in (0, 1)
    ]
    assert '","c":"yes"}<close>' + "<eos>" * 5 == SCAFFOLDED.text(canvas.ids)
    assert (7,) == canvas.positions


def test_a_canvas_from_the_answers_start_has_no_opening() -> None:
    canvas = built([("a", YES_NO), ("b", YES_NO)])
    assert NO_OPENING == canvas.opening
    assert () == canvas.opening.filled([])


def test_an_answered_question_whose_labels_are_no_tokens_there_makes_no_canvas() -> None:
    swallowing = ToyTokenizer([*YES_NO, 'yes",'])
    asked = [("a", YES_NO), ("b", YES_NO)]
    assert build_canvas(swallowing, "json", asked, WIDTHS, scaffold=False, answered=1) is None


def test_what_is_answered_takes_no_room_in_the_canvas() -> None:
    asked = [(key, YES_NO) for key in "abcdefgh"]
    assert build(asked, (64,)) is None
    canvas = build_canvas(TOY, "json", asked, (64, 128), scaffold=False, answered=7)
    assert canvas is not None
    assert 64 == canvas.width
    with pytest.raises(ValueError):
        canvas.opening.filled([0])
