"""The canvas: template ids with a slot for each question, found by differencing, padded to a width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structured_server.core.template import TemplateStyle, differing_position, render_answer
from structured_server.core.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Slot:
    """The canvas position where the model writes one question's label."""

    position: int
    options: tuple[tuple[int, ...], ...]  # per option: its label's id and white-space variants, ascending


@dataclass(frozen=True, slots=True)
class Canvas:
    """Tokens that are denoised together: (scaffold,) template with slots, turn close, padding.

    `ids` holds some label at each slot; a read fills the slots before it is sent.
    """

    ids: tuple[int, ...]
    slots: tuple[Slot, ...]  # in the order of the questions

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

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the slots, ascending."""
        return tuple(slot.position for slot in self.slots)

    @property
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
) -> Canvas | None:
    """Seed a canvas for questions given as (key, labels), in the narrowest of `widths` that holds it.

    Returns None where no width does, or where the labels, each a token when its question stands alone, no
    longer are when the questions stand side by side.
    """
    head = tokenizer.scaffold if scaffold else ()
    base = _answer(tokenizer, style, [(key, labels[0]) for key, labels in questions])
    need = len(head) + len(base) + 1
    width = next((width for width in widths if width >= need), None)
    if width is None:
        return None
    slots: list[Slot] = []
    for index in range(len(questions)):
        found = _slot(tokenizer, style, questions, index, base)
        if found is None:
            return None
        position, labels = found
        slots.append(Slot(len(head) + position, tuple(tokenizer.variants(i) for i in labels)))
    ids = (*head, *base, tokenizer.turn_close)
    return Canvas(ids + (tokenizer.padding,) * (width - len(ids)), tuple(slots))


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
