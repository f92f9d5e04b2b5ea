"""The prompt: typed segments that end at the model's turn. Never a template language, never ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from structured_server.core.questions import Question
from structured_server.core.template import TemplateStyle, render_answer
from structured_server.core.tokens import ChatFormat, Kind, Segment

Layout = Literal["schema_first", "document_first"]

_TASK = (
    "You read a text and answer fixed questions about it, going only by what the text says. "
    "Each question lists its possible labels; exactly one label answers it."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it stands in one canvas: the key that names it there and a label for each option."""

    key: str
    question: Question
    labels: tuple[str, ...]

    @property
    def aliases(self) -> dict[str, str]:
        """The label of each option, by its key, where it is not the option's own word."""
        options = zip(self.question.options, self.labels, strict=True)
        return {option.key: label for option, label in options if label != option.word}

    @property
    def aliased(self) -> bool:
        """Whether labels stand for options in a way that the caller did not ask for."""
        return bool(self.aliases.items() - set(self.question.aliases))


def build_prompt(
    chat: ChatFormat, layout: Layout, style: TemplateStyle, asked: Sequence[Asked], state: str
) -> tuple[Segment, ...]:
    """Lay out the questions and the state as a system and a user message.

    `schema_first` puts the questions into the system message, so that states share a prefix;
    `document_first` puts them after the state, so that questions about one state do.
    """
    questions = _describe(asked, style)
    if chat.strips:  # the questions themselves neither begin nor end with white space
        state = state.strip() if layout == "schema_first" else state.lstrip()
    user: tuple[Segment, ...]
    if layout == "schema_first":
        system, user = f"{_TASK}\n\n{questions}", (Segment(Kind.STATE, state),)
    else:
        gap = "\n\n" if state or not chat.strips else ""
        system, user = _TASK, (Segment(Kind.STATE, state), Segment(Kind.TEXT, gap + questions))
    return (
        Segment(Kind.CONTROL, chat.start),
        Segment(Kind.TEXT, system),
        Segment(Kind.CONTROL, chat.middle),
        *user,
        Segment(Kind.CONTROL, chat.end),
    )


def _describe(asked: Sequence[Asked], style: TemplateStyle) -> str:
    blocks = [_block(each) for each in asked]
    form = render_answer(style, [(each.key, "...") for each in asked])
    return "\n\n".join([*blocks, f"Answer in this form, with a label for each ...:\n{form}"])


def _block(asked: Asked) -> str:
    instructions = (asked.question.instructions or "").strip()
    lines = [f"Question {asked.key}: {instructions}".rstrip()]
    for option, label in zip(asked.question.options, asked.labels, strict=True):
        meaning = [] if label == option.word else [option.word]
        if option.description and option.description.strip():
            meaning.append(option.description.strip())
        lines.append(f"- {label}: {', '.join(meaning)}" if meaning else f"- {label}")
    return "\n".join(lines)
