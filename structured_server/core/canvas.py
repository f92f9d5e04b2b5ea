"""The canvas: template ids with a slot for each question, found by differencing, padded to a width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from structured_server.core.template import TemplateStyle, differing_position, render_answer
from structured_server.core.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Slot:
    """The canvas position where the model writes one question's label."""

    position: int
    options: tuple[tuple[int, ...], ...]  # per option: its label's id and white-space variants, ascending


@dataclass(frozen=True, slots=True)
class Opening:
    """The start of an answer whose labels are known: it stands in the prompt, and the canvas goes on from it.

    `labels` holds for each of its questions the place of the label, and each option's label id there.
    """

    ids: tuple[int, ...] = ()
    labels: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def filled(self, answers: Sequence[int]) -> tuple[int, ...]:
        """Return the ids with the label of each question's answer, given as the option's index."""
        filled = list(self.ids)
        for (position, ids), answer in zip(self.labels, answers, strict=True):
            filled[position] = ids[answer]
        return tuple(filled)


NO_OPENING = Opening()


@dataclass(frozen=True)
class Canvas:
    """Tokens that are denoised together: (scaffold,) template with slots, turn close, padding.

    `ids` holds some label at each slot; a read fills the slots before it is sent. `opening` is what the
    prompt must end with.
    """

    ids: tuple[int, ...]
    slots: tuple[Slot, ...]  # in the order of the questions
    opening: Opening = NO_OPENING

    def __post_init__(self) -> None:
        positions = [slot.position for slot in self.slots]
        if positions != sorted(set(positions)) or not all(0 <= p < len(self.ids) for p in positions):
            raise ValueError(f"slots at {positions} do not fit a canvas of {len(self.ids)}")
        for slot in self.slots:
            ids = [i for option in slot.options for i in option]
            if len(ids) != len(set(ids)):
                raise ValueError(f"two options of the slot at {slot.position} share a token id")

    @property
    def width(self) -> int:
        """The canvas's length in tokens."""
        return len(self.ids)

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The positions of the slots, ascending."""
        return tuple(slot.position for slot in self.slots)

    @cached_property
    def label_ids(self) -> tuple[int, ...]:
        """The union of all slots' label ids, ascending."""
        return tuple(sorted({i for slot in self.slots for option in slot.options for i in option}))


def build_canvas(
    tokenizer: Tokenizer,
    style: TemplateStyle,
    questions: Sequence[tuple[str, Sequence[str]]],
    widths: Sequence[int],
    *,
    scaffold: bool,
    answered: int = 0,
) -> Canvas | None:
    """Seed a canvas for questions given as (key, labels), in the narrowest of `widths` that holds it.

    The first `answered` questions have their answers: up to the last one's label the answer is the canvas's
    opening, and no scaffold stands between the two. A label is one token whichever it is, so the ids around
    it, and the place where the answer is cut, do not depend on what was answered.

    Returns None where no width does, or where the labels, each a token when its question stands alone, no
    longer are when the questions stand side by side.
    """
    base = _answer(tokenizer, style, [(key, labels[0]) for key, labels in questions])
    found: list[tuple[int, list[int]]] = []
    for index in range(len(questions)):
        slot = _slot(tokenizer, style, questions, index, base)
        if slot is None:
            return None
        found.append(slot)
    cut = found[answered - 1][0] + 1 if answered else 0
    head = tokenizer.scaffold if scaffold and not answered else ()
    ids = (*head, *base[cut:], tokenizer.turn_close)
    width = next((width for width in widths if width >= len(ids)), None)
    if width is None:
        return None
    shift = len(head) - cut
    slots = [
        Slot(position + shift, tuple(tokenizer.variants(i) for i in labels))
        for position, labels in found[answered:]
    ]
    opening = Opening(base[:cut], tuple((position, tuple(labels)) for position, labels in found[:answered]))
    return Canvas(ids + (tokenizer.padding,) * (width - len(ids)), tuple(slots), opening)


def _slot(
    tokenizer: Tokenizer,
    style: TemplateStyle,
    questions: Sequence[tuple[str, Sequence[str]]],
    index: int,
    base: tuple[int, ...],
) -> tuple[int, list[int]] | None:
    """Return where one question's label stands in the joint answer, and each label's id there."""
    pairs = [(key, labels[0]) for key, labels in questions]
    key, labels = questions[index]
    position: int | None = None
    ids: list[int] = []
    for label in labels[1:]:
        other = _answer(tokenizer, style, [*pairs[:index], (key, label), *pairs[index + 1 :]])
        at = differing_position(base, other)
        if at is None or position not in (None, at):
            return None
        position = at
        ids.append(other[at])
    assert position is not None, "a question has at least two labels"
    ids.insert(0, base[position])
    if [tokenizer.token_text(token_id).strip() for token_id in ids] != list(labels):
        return None
    return position, ids


def _answer(tokenizer: Tokenizer, style: TemplateStyle, pairs: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    return tuple(tokenizer.encode(render_answer(style, pairs)))
