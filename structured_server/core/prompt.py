"""The prompt: typed segments that end at the model's turn. Never a template language, never ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from structured_server.core.questions import Question
from structured_server.core.template import TemplateStyle, render_answer
from structured_server.core.tokens import ChatFormat, Kind, Segment

Layout = Literal["schema_first", "document_first"]

_TASK = (
    "You read a text and answer fixed questions about it, going only by what the text says. "
    "Each question lists its possible labels; exactly one label answers it."
)


@dataclass(frozen=True)
class Asked:
    """A question as it stands in one canvas: the key that names it there and a label for each option.

    `first` is the option that the prompt lists first; the others follow in a circle.
    """

    key: str
    question: Question
    labels: tuple[str, ...]
    first: int = 0

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The label of each option, by its key, where it is not the option's own word."""
        options = zip(self.question.options, self.labels, strict=True)
        return {option.key: label for option, label in options if label != option.word}

    @cached_property
    def aliased(self) -> bool:
        """Whether labels stand for options in a way that the caller did not ask for."""
        return bool(self.aliases.items() - set(self.question.aliases))

    @cached_property
    def described(self) -> str:
        """What the prompt says of it: its key, what is asked, its labels and what they mean."""
        instructions = (self.question.instructions or "").strip()
        lines = [f"Question {self.key}: {instructions}".rstrip()]
        options = self.question.options
        for index in self.listed:
            option, label = options[index], self.labels[index]
            meaning = [] if label == option.word else [option.word]
            if option.description and option.description.strip():
                meaning.append(option.description.strip())
            lines.append(f"- {label}: {', '.join(meaning)}" if meaning else f"- {label}")
        return "\n".join(lines)

    @property
    def listed(self) -> tuple[int, ...]:
        """The options' indices in the order in which the prompt lists them."""
        count = len(self.labels)
        return tuple((self.first + index) % count for index in range(count))

    def turned(self, by: int) -> Asked:
        """List the options from another one on. Letters stay in their order, so they change options.

        A score's levels stay as they are: their order is what they mean.
        """
        count = len(self.labels)
        if self.question.kind == "score" or by % count == 0:
            return self
        turned = replace(self, first=by % count)
        if not self.aliased:
            return turned
        labels = dict(zip(turned.listed, self.labels, strict=True))
        return replace(turned, labels=tuple(labels[index] for index in range(count)))


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with the answer that it has, as the index of the option."""

    asked: Asked
    answer: int


def build_prompt(
    chat: ChatFormat,
    layout: Layout,
    style: TemplateStyle,
    asked: Sequence[Asked],
    state: str,
    *,
    context: str | None = None,
    answered: Sequence[Answered] = (),
    restate: bool = False,
) -> tuple[Segment, ...]:
    """Lay out the questions and the state as a system and a user message.

    `schema_first` puts the questions into the system message, so that states share a prefix;
    `document_first` puts them after the state, so that questions about one state do. Questions that are
    `answered` are described too: their answers open the model's own answer, or are told with `restate`. The
    `context` is what all questions have in common; it stands before them and before the state.
    """
    questions = _describe([*(each.asked for each in answered), *asked], asked if restate else None, style)
    told = _tell(answered) if restate else ""
    if chat.strips:  # the questions themselves neither begin nor end with white space
        state = state.strip() if layout == "schema_first" and not told else state.lstrip()
    user: list[Segment] = [Segment(Kind.STATE, state)]
    gap = "\n\n" if state or not chat.strips else ""
    task = "\n\n".join(filter(None, (_TASK, (context or "").strip())))
    if layout == "schema_first":
        system = f"{task}\n\n{questions}"
        if told:
            user.append(Segment(Kind.TEXT, gap + told))
    else:
        system = task
        user.append(Segment(Kind.TEXT, gap + "\n\n".join(filter(None, (questions, told)))))
    return (
        Segment(Kind.CONTROL, chat.start),
        Segment(Kind.TEXT, system),
        Segment(Kind.CONTROL, chat.middle),
        *user,
        Segment(Kind.CONTROL, chat.end),
    )


def _describe(described: Sequence[Asked], form_of: Sequence[Asked] | None, style: TemplateStyle) -> str:
    blocks = [each.described for each in described]
    form = render_answer(style, [(each.key, "...") for each in form_of or described])
    return "\n\n".join([*blocks, f"Answer in this form, with a label for each ...:\n{form}"])


def _tell(answered: Sequence[Answered]) -> str:
    if not answered:
        return ""
    lines = [f"{each.asked.key}: {each.asked.labels[each.answer]}" for each in answered]
    return "\n".join(["Answered already:", *lines])
