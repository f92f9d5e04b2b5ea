"""Values in the places that a template has for them."""

from __future__ import annotations

import json
import re
from typing import Any

from structured_server.templates.page import BARE, BEGIN, MARK, Json, Placed, to_json

_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null", re.ASCII)


class Misplaced(Exception):
    """A value cannot stand where the template has it."""

    def __init__(self, placed: Placed, problem: str) -> None:
        super().__init__(problem)
        self.placed = placed
        self.problem = problem


def filled(tree: Any, values: list[Placed], *, text_is_bare: bool) -> Any:
    """Return what was read with values for its marks: text between quotes, and themselves outside.

    `text_is_bare` says that text needs no quotes, as in YAML. Where it needs them, a number, true, false or
    null that came as text stands for itself outside of them.

    Raises:
        Misplaced: a value cannot stand where it is to.
    """
    if isinstance(tree, dict):
        found: dict[str, Any] = {}
        for key, value in tree.items():
            name = _text(key, values)
            if name in found:
                first = MARK.search(key)
                assert first is not None  # keys that are written out differ
                raise Misplaced(values[int(first[2])], f"makes the key {name!r} stand twice in an object")
            found[name] = filled(value, values, text_is_bare=text_is_bare)
        return found
    if isinstance(tree, list):
        return [filled(each, values, text_is_bare=text_is_bare) for each in tree]
    if not isinstance(tree, str):
        return tree
    if tree.startswith(BARE) and (mark := MARK.fullmatch(tree)) and int(mark[2]) < len(values):
        return _itself(values[int(mark[2])], text_is_bare)
    return _text(tree, values)


def _itself(placed: Placed, text_is_bare: bool) -> Any:
    value = placed.value
    if isinstance(value, Json):
        return value.value
    if not isinstance(value, str) or text_is_bare:
        return value
    if not _SCALAR.fullmatch(value):
        raise Misplaced(
            placed, "is text outside of quotes: put it between quotes, or write tojson as the last filter"
        )
    return json.loads(value)


def _text(written: str, values: list[Placed]) -> str:
    if BEGIN not in written and BARE not in written:
        return written
    return MARK.sub(
        lambda mark: _as_text(values[int(mark[2])], mark[1]) if int(mark[2]) < len(values) else mark[0],
        written,
    )


def _as_text(placed: Placed, kind: str) -> str:
    value = placed.value
    if kind == BARE:
        raise Misplaced(placed, "is a key outside of quotes")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int | float):
        return to_json(value)
    word = "null" if value is None else "an object" if isinstance(value, dict) else "a list"
    raise Misplaced(
        placed, f"is {word} between quotes: leave the quotes out, or write tojson for its JSON as text"
    )
