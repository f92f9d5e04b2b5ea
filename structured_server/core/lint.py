"""Lint: what a question set comes to, before any state is read: canvases, labels, reads, tokens, warnings."""

from __future__ import annotations

from dataclasses import dataclass

from structured_server.core.answers import DecisionWarning
from structured_server.core.canvas import Canvas, Opening
from structured_server.core.findings import find_warnings
from structured_server.core.lint_facts import Facts
from structured_server.core.plan import Group
from structured_server.core.prompt import Asked
from structured_server.core.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class QuestionReport:
    """A question in its canvas. `label_ids` counts its labels' ids, white-space variants included."""

    identifier: str
    asked: Asked
    label_ids: int


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Questions that share a canvas. `text` is the canvas with its slots marked, without its padding.

    `opening` is the text of earlier answers that the canvas goes on from, where there is any.
    """

    stage: int
    questions: tuple[QuestionReport, ...]
    text: str
    opening: str | None
    width: int
    padding: int
    label_ids: int
    reads_per_draw: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Reads of one decision, and the prompt tokens that they send; reads made again are not foreseen."""

    one_draw: int
    auto_at_most: int
    as_asked: int  # at most, where samples are auto or questions wait for an answer
    prompt_tokens_of_a_draw: int
    prompt_tokens_as_asked: int


@dataclass(frozen=True, slots=True)
class Report:
    """All that lint has to say of one question set."""

    groups: tuple[GroupReport, ...]
    cost: Cost
    warnings: tuple[DecisionWarning, ...]


def lint(facts: Facts, tokenizer: Tokenizer) -> Report:
    """Report on a question set."""
    return Report(_groups(facts, tokenizer), _cost(facts), find_warnings(facts, tokenizer))


def _groups(facts: Facts, tokenizer: Tokenizer) -> tuple[GroupReport, ...]:
    stages = [number for number, stage in enumerate(facts.plan.stages) for _ in stage]
    return tuple(
        _group(group, stage, len(chunks), length - group.canvas.width, tokenizer)
        for group, stage, chunks, length in zip(
            facts.plan.groups, stages, facts.chunks, facts.lengths, strict=True
        )
    )


def _group(group: Group, stage: int, reads: int, prompt_tokens: int, tokenizer: Tokenizer) -> GroupReport:
    canvas = group.canvas
    padding = _padding(canvas, tokenizer)
    return GroupReport(
        stage=stage,
        questions=tuple(
            QuestionReport(name, asked, sum(map(len, slot.options)))
            for name, asked, slot in zip(group.identifiers, group.asked, canvas.slots, strict=True)
        ),
        text=_text(
            canvas.ids[: canvas.width - padding],
            dict(zip(canvas.positions, group.identifiers, strict=True)),
            tokenizer,
        ),
        opening=_opening(canvas.opening, [name for name, _ in group.given], tokenizer),
        width=canvas.width,
        padding=padding,
        label_ids=len(canvas.label_ids),
        reads_per_draw=reads,
        prompt_tokens=prompt_tokens,
    )


def _padding(canvas: Canvas, tokenizer: Tokenizer) -> int:
    """Count the padding behind the turn's end, which may be the same token."""
    count = 0
    while canvas.ids[-1 - count] == tokenizer.padding:
        count += 1
    return count - (tokenizer.padding == tokenizer.turn_close)


def _opening(opening: Opening, names: list[str], tokenizer: Tokenizer) -> str | None:
    if not opening.ids:
        return None
    places = [position for position, _ in opening.labels]
    return _text(opening.ids, dict(zip(places, names, strict=True)), tokenizer)


def _text(ids: tuple[int, ...], slots: dict[int, str], tokenizer: Tokenizer) -> str:
    """Return what ids read as, each slot as its question's id in white brackets."""
    text, start = "", 0
    for position, name in slots.items():
        text += tokenizer.text(ids[start:position]) + f"⟦{name}⟧"
        start = position + 1
    return text + tokenizer.text(ids[start:])


def _cost(facts: Facts) -> Cost:
    prompts = [
        length - group.canvas.width for group, length in zip(facts.plan.groups, facts.lengths, strict=True)
    ]
    reads = [len(chunks) for chunks in facts.chunks]
    extra = facts.policy.extra_draws
    draws = [1 + extra if may else 1 for may in facts.may_extend]
    if facts.plan.options.slot_fill == "mask":  # every draw would be the same
        draws = taken = [1] * len(reads)
    else:
        taken = draws if facts.policy.samples == "auto" else [facts.policy.samples] * len(reads)
    return Cost(
        one_draw=sum(reads),
        auto_at_most=_dot(reads, draws),
        as_asked=_dot(reads, taken),
        prompt_tokens_of_a_draw=_dot(reads, prompts),
        prompt_tokens_as_asked=sum(a * b * c for a, b, c in zip(reads, prompts, taken, strict=True)),
    )


def _dot(first: list[int], second: list[int]) -> int:
    return sum(a * b for a, b in zip(first, second, strict=True))
