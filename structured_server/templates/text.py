"""How values become text in a template: so that it is JSON, or YAML, whatever they hold."""

from __future__ import annotations

import json
import re
from typing import Any

# What JSON may hold as it is, and YAML would take for a line's end or refuse.
_AWKWARD = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


class Json(str):
    """Text that is JSON already."""

    __slots__ = ()


def to_json(value: Any, indent: int | None = None) -> Json:
    """Return a value as JSON.

    Raises:
        ValueError: JSON has no word for it.
    """
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"{type(value).__name__} cannot be written as JSON") from None
    return Json(_AWKWARD.sub(lambda found: f"\\u{ord(found[0]):04x}", written))


def inserted(value: Any) -> str:
    """Return what stands in the text for a value: text escaped as between quotes, numbers as they are.

    Raises:
        ValueError: it is neither, and must say how it is to be written.
    """
    if isinstance(value, Json):
        return value
    if isinstance(value, str):
        return to_json(value)[1:-1]
    if isinstance(value, bool | int | float):
        return to_json(value)
    kind = {"NoneType": "null", "dict": "an object", "list": "a list"}.get(type(value).__name__)
    raise ValueError(
        f"{kind or type(value).__name__} is inserted as JSON only: use tojson, outside of quotes"
    )
