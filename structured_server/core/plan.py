"""The plan: which questions share a canvas. Compiled once per question set, then cached by the caller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from structured_server.core.canvas import Canvas, build_canvas
from structured_server.core.labels import choose_labels
from structured_server.core.prompt import Asked, Layout
from structured_server.core.questions import Question, Schema
from structured_server.core.reads import SlotFill
from structured_server.core.template import Keys, TemplateStyle, choose_keys
from structured_server.core.tokens import Tokenizer
from structured_server.errors import InvalidQuestion

Isolate = Literal["none", "noul", "all", "auto"]
Scaffold = Literal["prompt", "canvas"]

_ANY_WIDTH = range(1, 1 << 32)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do. `None` means that it sets no limit."""

    widths: tuple[int, ...]  # canvas lengths in tokens, ascending
    max_label_ids: int | None  # ids that one read may ask for, counted over the whole canvas
    max_model_len: int | None  # prompt and canvas together, in tokens


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How questions are laid out; every field moves numbers."""

    layout: Layout = "schema_first"
    template: TemplateStyle = "json"
    keys: Keys = "auto"
    isolate: Isolate = "none"
    scaffold: Scaffold = "prompt"
    slot_fill: SlotFill = "noise"


@dataclass(frozen=True, slots=True)
class Group:
    """Questions that share a canvas, in the order of their slots."""

    identifiers: tuple[str, ...]
    asked: tuple[Asked, ...]
    canvas: Canvas

    @property
    def content(self) -> str:
        """What the questions say, without their ids: the part of the noise seed that is theirs."""
        return json.dumps(
            [
                [q.kind, q.instructions, [[o.key, o.word, o.description] for o in q.options], q.aliases]
                for q in (each.question for each in self.asked)
            ],
            ensure_ascii=False,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Every question of a schema in exactly one group; all groups may be read at once."""

    groups: tuple[Group, ...]
    options: ReadOptions
    isolated: Isolate  # what `isolate` came to: never "auto"


def compile_plan(
    schema: Schema, options: ReadOptions, capabilities: Capabilities, tokenizer: Tokenizer
) -> Plan:
    """Put the questions into as few canvases as capacity, the id cap and isolation allow, in order.

    Raises:
        InvalidQuestion: a question fits no canvas even alone, or has more label ids than a read may ask for.
        InvalidRequest: the ids cannot name the questions as asked.
    """
    isolate = _settled(options.isolate, schema)
    groups: list[Group] = []
    for bundle in _bundles(schema, isolate):
        while bundle:
            group = _largest_group(bundle, options, capabilities, tokenizer)
            groups.append(group)
            bundle = bundle[len(group.asked) :]
    return Plan(tuple(groups), options, isolate)


def _settled(isolate: Isolate, schema: Schema) -> Isolate:
    """Decide `auto`: yes/no questions copy each other where two or three questions share a canvas."""
    if isolate != "auto":
        return isolate
    nouls = sum(question.kind == "noul" for _, question in schema.questions)
    return "noul" if len(schema) in (2, 3) and nouls >= 2 else "none"


def _bundles(schema: Schema, isolate: Isolate) -> Iterable[Sequence[tuple[str, Question]]]:
    """Yield runs of questions that may share a canvas."""
    together: list[tuple[str, Question]] = []
    for entry in schema.questions:
        if isolate == "all" or (isolate == "noul" and entry[1].kind == "noul"):
            yield [entry]
        else:
            together.append(entry)
    if together:
        yield together


def _largest_group(
    bundle: Sequence[tuple[str, Question]],
    options: ReadOptions,
    capabilities: Capabilities,
    tokenizer: Tokenizer,
) -> Group:
    """Return the longest run from the front of the bundle that fits one read.

    Each question costs at least four canvas tokens, so no run is longer than the canvas allows.
    """
    longest = min(len(bundle), capabilities.widths[-1] // 4)
    best: Group | None = None
    for size in range(1, longest + 1):
        group = _group(bundle[:size], options, tokenizer, capabilities.widths, capabilities.max_label_ids)
        if group is None:
            break
        best = group
    if best is None:
        raise _does_not_fit(bundle[0], options, capabilities, tokenizer)
    return best


def _group(
    entries: Sequence[tuple[str, Question]],
    options: ReadOptions,
    tokenizer: Tokenizer,
    widths: Sequence[int],
    max_label_ids: int | None,
) -> Group | None:
    """Put the questions into one canvas, or return None where no width or the id cap holds them."""
    identifiers = tuple(identifier for identifier, _ in entries)
    asked: list[Asked] = []
    taken: set[str] = set()
    for key, (identifier, question) in zip(choose_keys(identifiers, options.keys), entries, strict=True):
        try:
            labels = choose_labels(tokenizer, options.template, key, question, taken)
        except InvalidQuestion as error:
            raise located(error, identifier) from None
        taken.update(labels)
        asked.append(Asked(key, question, labels))
    canvas = build_canvas(
        tokenizer,
        options.template,
        [(each.key, each.labels) for each in asked],
        widths,
        scaffold=options.scaffold == "canvas",
    )
    if canvas is None or (max_label_ids is not None and len(canvas.label_ids) > max_label_ids):
        return None
    return Group(identifiers, tuple(asked), canvas)


def _does_not_fit(
    entry: tuple[str, Question], options: ReadOptions, capabilities: Capabilities, tokenizer: Tokenizer
) -> InvalidQuestion:
    identifier, question = entry
    alone = _group([entry], options, tokenizer, _ANY_WIDTH, None)
    assert alone is not None, "a question alone fits a canvas without limits"
    if alone.canvas.width > capabilities.widths[-1]:
        return InvalidQuestion(
            f"takes {alone.canvas.width} canvas tokens even alone; the widest canvas has "
            f"{capabilities.widths[-1]}.",
            path=("questions", identifier),
            hint="Shorten the id, or set read.keys to neutral.",
        )
    return InvalidQuestion(
        f"has {len(question.options)} options, which are {len(alone.canvas.label_ids)} label ids; "
        f"one read holds {capabilities.max_label_ids}.",
        path=("questions", identifier, "criteria"),
        hint="Use fewer options, or ask in two steps.",
    )


def located(error: InvalidQuestion, identifier: str) -> InvalidQuestion:
    """Return the error with its path counted from the request instead of from the question."""
    return InvalidQuestion(error.predicate, path=("questions", identifier, *error.path), hint=error.hint)
