"""Warnings about a question set that can be had without a state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from structured_server.core.answers import DecisionWarning
from structured_server.core.lint_facts import Facts
from structured_server.core.plan import Group
from structured_server.core.prompt import Asked
from structured_server.core.questions import Noul
from structured_server.core.template import TemplateStyle, render_answer
from structured_server.core.tokens import Tokenizer
from structured_server.core.wording import leading_word, opposite

NAMED = 3
"""How many things a message names before it only counts them."""


def find_warnings(facts: Facts, tokenizer: Tokenizer) -> tuple[DecisionWarning, ...]:
    """Return all warnings, those about a question in the order of the groups."""
    plan = facts.plan
    found: list[DecisionWarning] = []
    for group in plan.groups:
        members = list(zip(group.identifiers, group.asked, strict=True))
        for name, asked in members:
            found += _first_tokens(name, asked, plan.options.template, tokenizer)
        found += _opposite_nouls(members)
        found += _copying_nouls(members)
        found += _shared_labels(members)
    found += _leading_ids(plan.groups)
    found += _wide_choices(facts)
    found += _too_many_reads(facts)
    found += _long_states(facts)
    return tuple(found)


def _first_tokens(
    name: str, asked: Asked, style: TemplateStyle, tokenizer: Tokenizer
) -> Iterator[DecisionWarning]:
    """Find options that no single token tells apart."""
    if not asked.aliased:
        return
    start = _label_position(asked.key, style, tokenizer)
    by_token: defaultdict[int, list[str]] = defaultdict(list)
    for option in asked.question.options:
        ids = tokenizer.encode(render_answer(style, [(asked.key, option.word)]))
        if start < len(ids):
            by_token[ids[start]].append(option.word)
    alike = [words for words in by_token.values() if len(words) > 1]
    if alike:
        count = sum(map(len, alike))
        labels = "digits" if asked.labels[0].isdigit() else "letters"
        yield DecisionWarning(
            "options_share_first_token",
            f"{count} of its options begin with the same token as another one ({some(alike[0])}), "
            f"so {labels} stand for them. Words that begin differently could stand for themselves.",
            name,
        )


def _label_position(key: str, style: TemplateStyle, tokenizer: Tokenizer) -> int:
    """Return where a label begins in an answer that holds only its question."""
    first, second = (tokenizer.encode(render_answer(style, [(key, word)])) for word in "AB")
    return next(at for at, (one, two) in enumerate(zip(first, second, strict=False)) if one != two)


def _opposite_nouls(members: Sequence[tuple[str, Asked]]) -> Iterator[DecisionWarning]:
    nouls = [(name, each.question) for name, each in members if isinstance(each.question, Noul)]
    for (first, one), (second, two) in combinations(nouls, 2):
        if opposite(one, two):
            yield DecisionWarning(
                "opposite_nouls",
                f"It asks the opposite of {first} in the same canvas: the answers copy each other, although "
                "one should be yes where the other is no. Ask one of the two, or set read.isolate to noul.",
                second,
            )


def _copying_nouls(members: Sequence[tuple[str, Asked]]) -> Iterator[DecisionWarning]:
    nouls = [name for name, each in members if each.question.kind == "noul"]
    if len(nouls) > 1:
        yield DecisionWarning(
            "nouls_share_canvas",
            f"{some(nouls)} share a canvas, and yes/no questions that are read together copy each other. "
            "Set read.isolate to noul to read each apart, or to auto to do so among two or three questions.",
        )


def _shared_labels(members: Sequence[tuple[str, Asked]]) -> Iterator[DecisionWarning]:
    """Find questions with a neighbour's labels; yes/no questions among themselves have their own warning."""
    for index, (name, each) in enumerate(members):
        others = [
            (other, shared)
            for other, earlier in members[:index]
            if (each.question.kind, earlier.question.kind) != ("noul", "noul")
            and (shared := [label for label in each.labels if label in earlier.labels])
        ]
        if others:
            labels = list(dict.fromkeys(label for _, shared in others for label in shared))
            yield DecisionWarning(
                "shared_labels",
                f"It shares the labels {some(labels)} with {some([other for other, _ in others])} in its "
                "canvas, and neighbours that share labels copy each other. Name the options otherwise, give "
                "aliases, or set alone.",
                name,
            )


def _leading_ids(groups: Iterable[Group]) -> Iterator[DecisionWarning]:
    """Find ids that the model sees, as the question's name, and that hold part of an answer."""
    seen = {
        name: asked.question
        for group in groups
        for name, asked in (*group.given, *zip(group.identifiers, group.asked, strict=True))
        if asked.key == name
    }
    for name, question in seen.items():
        word = leading_word(name, question)
        if word is not None:
            yield DecisionWarning(
                "leading_id",
                f"The model sees this id, and {word!r} in it suggests an answer. Rename the question, or set "
                "read.keys to neutral.",
                name,
            )


def _wide_choices(facts: Facts) -> Iterator[DecisionWarning]:
    for group, chunks in zip(facts.plan.groups, facts.chunks, strict=True):
        if len(chunks) > 1:
            yield DecisionWarning(
                "wide_choice",
                f"Its {len(group.canvas.label_ids)} label ids are more than the "
                f"{facts.capabilities.max_label_ids} that one read may ask for, so each draw takes "
                f"{len(chunks)} reads.",
                group.identifiers[0],
            )


def _too_many_reads(facts: Facts) -> Iterator[DecisionWarning]:
    if facts.over_limit is not None:
        yield DecisionWarning("reads_exceed_max", f"Such a decision is refused: {facts.over_limit}")
        return
    if facts.policy.samples != "auto" or facts.plan.options.slot_fill == "mask":
        return
    groups = zip(facts.plan.groups, facts.may_extend, strict=True)
    kept = [name for group, may in groups if not may for name in group.identifiers]
    if kept:
        yield DecisionWarning(
            "reads_exceed_max",
            f"Three more draws of {some(kept)} would pass the limit of reads, so they are read once however "
            "uncertain they are. Raise read.max_reads.",
        )


def _long_states(facts: Facts) -> Iterator[DecisionWarning]:
    room = facts.room
    if room is None:
        return
    fate = "is refused" if facts.long_state == "reject" else "is cut"
    for what, tokens in (
        ("The state", facts.state_tokens),
        ("The longest state", facts.longest_state_tokens),
    ):
        if tokens is not None and tokens > room:
            yield DecisionWarning(
                "state_too_long_for_engine",
                f"{what} of {tokens} tokens {fate}: beside these questions {room} fit into the engine's "
                f"context of {facts.capabilities.max_model_len}.",
            )


def some(names: Sequence[str]) -> str:
    """Name a few, and count the rest."""
    if not names:
        return "none"
    if len(names) <= NAMED + 1:
        return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
