"""The fixed answer text that is seeded into the canvas, and how questions are named in it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

from structured_server.errors import InvalidRequest

TemplateStyle = Literal["json", "lines"]
Keys = Literal["auto", "named", "neutral"]

# A question's id steers the model like any other prompt text, so only words that read naturally stay.
_PLAIN_WORD = re.compile(r"[a-z]+(_[a-z]+){0,2}")
_LONGEST_PLAIN_WORD = 24


def render_answer(style: TemplateStyle, pairs: Sequence[tuple[str, str]]) -> str:
    """Return the answer text for (key, label) pairs: compact JSON, or one `key: label` line each."""
    if style == "json":
        return json.dumps(dict(pairs), ensure_ascii=False, separators=(",", ":"))
    return "\n".join(f"{key}: {label}" for key, label in pairs)


def differing_position(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Return the one position where two id sequences of equal length differ, else None."""
    if len(first) != len(second):
        return None
    positions = [index for index, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    return positions[0] if len(positions) == 1 else None


def choose_keys(identifiers: Sequence[str], keys: Keys) -> tuple[str, ...]:
    """Name the questions of one canvas: their own ids, or single letters.

    `auto` keeps the ids where every one of them is a plain short word.

    Raises:
        InvalidRequest: `named` was asked for and an id cannot stand in an answer's line.
    """
    if keys == "auto":
        keys = "named" if all(_is_plain(identifier) for identifier in identifiers) else "neutral"
    if keys == "neutral":
        return tuple(neutral_key(index) for index in range(len(identifiers)))
    for identifier in identifiers:
        if not identifier.isprintable() or '"' in identifier or "\\" in identifier:
            raise InvalidRequest(
                "holds a quote, a backslash or a control character, so it cannot name the question.",
                path=("questions", identifier),
                hint="Leave read.keys at auto, or choose neutral.",
            )
    return tuple(identifiers)


def neutral_key(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ... for 0, 1, ..., 25, 26, 27, ..."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def _is_plain(identifier: str) -> bool:
    return len(identifier) <= _LONGEST_PLAIN_WORD and _PLAIN_WORD.fullmatch(identifier) is not None
