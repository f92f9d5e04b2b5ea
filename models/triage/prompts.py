"""Training examples as token ids, built by the server's own prompt and canvas so that both always agree."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

import wordings

from structured_server.core.plan import Capabilities, Group, ReadOptions, compile_plan
from structured_server.core.prompt import build_prompt
from structured_server.core.questions import Schema
from structured_server.core.tokens import Kind, Segment, Tokenizer

Random = random.Random
WIDTHS = Capabilities((16, 32, 48, 64), None, None)


@dataclass(frozen=True)
class Asked:
    """Questions in one canvas, with the prompt up to where the texts differ."""

    options: ReadOptions
    group: Group
    names: tuple[str, ...]  # what is asked in each slot, whatever its key is called
    prefix: tuple[int, ...]

    def rest(self, tokenizer: Tokenizer, state: str) -> tuple[int, ...]:
        """Return the prompt's ids behind the shared prefix, the scaffold at their end."""
        ids = prompt_ids(tokenizer, self.options, self.group, state)
        assert ids[: len(self.prefix)] == self.prefix
        return ids[len(self.prefix) :]


def prompt_ids(tokenizer: Tokenizer, options: ReadOptions, group: Group, state: str) -> tuple[int, ...]:
    """Return a whole prompt as the server sends it."""
    segments = build_prompt(tokenizer.chat, options.layout, options.template, group.asked, state)
    return tokenizer.encode_prompt(segments) + tokenizer.scaffold


def ask(tokenizer: Tokenizer, schema: Schema, options: ReadOptions, names: Sequence[str]) -> Asked:
    """Lay questions out. They must fit one canvas."""
    (group,) = compile_plan(schema, options, WIDTHS, tokenizer).groups
    segments = build_prompt(tokenizer.chat, options.layout, options.template, group.asked, "x")
    shared = list(segments[: [segment.kind for segment in segments].index(Kind.STATE)])
    control = shared[-1].text
    last = max(control.rfind(mark) for mark in ("<|turn>", "<turn|>"))
    head = [*shared[:-1], Segment(Kind.CONTROL, control[: last + len("<|turn>")])]
    return Asked(options, group, tuple(names), tokenizer.encode_prompt(head))


def some_questions(tokenizer: Tokenizer, choose: Random, names: Sequence[str]) -> Asked:
    """Ask the named questions in some wording, order and layout."""
    order = list(names)
    if choose.random() < 0.35:
        choose.shuffle(order)
    options = ReadOptions(
        layout="schema_first" if choose.random() < 0.93 else "document_first",
        template="json" if choose.random() < 0.85 else "lines",
        keys="named" if choose.random() < 0.85 else "neutral",
    )
    return ask(tokenizer, wordings.make_schema(choose, order), options, order)


def some_state(choose: Random, text: str) -> str:
    """Put a text as callers do: plainly, or in a JSON object."""
    kind = choose.random()
    if kind < 0.6:
        return text
    if kind < 0.8:
        title, _, detail = text.partition(". ")
        keys = choose.choice((("alert", "detail"), ("subject", "body"), ("title", "description")))
        state = {keys[0]: title, keys[1]: detail} if detail else {choose.choice(keys): text}
    else:
        state = {choose.choice(("text", "message", "ticket", "alert", "incident", "note")): text}
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))
