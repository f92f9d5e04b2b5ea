"""Requests that nobody should send: good ones with something done to their values, text, bytes or HTTP.

A mutant is made from a seed and its number alone, so that each can be made again.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any

from benchmarks.mutants.bodies import ROUTES
from benchmarks.mutants.draft import Draft, apply
from benchmarks.mutants.http import HTTP
from benchmarks.mutants.http import wire as as_bytes
from benchmarks.mutants.texts import TEXTS
from benchmarks.mutants.transports import TRANSPORTS
from benchmarks.mutants.values import VALUES, text_of

SHORT_DEADLINE_MS = 2_000  # below it, 504 is an answer


@dataclass(frozen=True, slots=True)
class Mutant:
    """A request as it goes over the wire.

    `may` are the statuses from 500 on that it asks for. With `damaged` its HTTP is wrong, so that the
    connection may end with the answer.
    """

    path: str
    kind: str
    wire: bytes
    may: frozenset[int]
    damaged: bool
    head_only: bool


def mutant(seed: int, index: int) -> Mutant:
    """Make the mutant of this number."""
    dice = random.Random(f"{seed}:{index}")
    path = dice.choice(list(ROUTES))
    draft = Draft(path, copy.deepcopy(dice.choice(ROUTES[path])))
    for _ in range(dice.choice((0, 0, 1, 1, 1, 2, 3))):
        apply(dice, draft, VALUES)
    draft.text = text_of(dice, draft)
    for stage, chance in ((TEXTS, 0.2), (TRANSPORTS, 0.3), (HTTP, 0.2)):
        if dice.random() < chance:
            apply(dice, draft, stage)
    return Mutant(
        path,
        "+".join(draft.done) or "none",
        as_bytes(dice, draft),
        frozenset({504} if _is_in_a_hurry(draft) else ()),
        draft.damaged,
        draft.method == "HEAD",
    )


def _is_in_a_hurry(draft: Draft) -> bool:
    """Tell whether a body may ask for a short deadline: one whose bytes were changed may as well."""
    return not {"hurry", "flip", "insert", "twice"}.isdisjoint(draft.done) or not _is_patient(draft.body)


def _is_patient(body: Any) -> bool:
    deadline = body.get("deadline_ms") if isinstance(body, dict) else None
    return not isinstance(deadline, int | float) or not 0 < deadline < SHORT_DEADLINE_MS
