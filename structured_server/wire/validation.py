"""From what pydantic found wrong to one error for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from structured_server.errors import CallerError, InvalidQuestion, InvalidRequest, MalformedBody, Path

_MESSAGES = {
    "extra_forbidden": "is no field that is known here.",
    "missing": "is required.",
}

# Name the two forms of a number: one for all types of questions, or one by type.
SAME, BY_TYPE = "same", "by type"
# Name the forms in which a field may come: as text or as a list of parts, as text or as an object.
TEXT, PARTS, OBJECT = "as text", "as parts", "as an object"
_FORMED = ("input", "content", "output", "instructions")

# What pydantic's messages begin with; here the path stands in its place.
_SUBJECT = re.compile(r"^(Input|String|List|Dictionary) ")


def caller_error(error: ValidationError, model: type[BaseModel]) -> CallerError:
    """Return the first thing that was wrong, with its path, and the field nearest to an unknown one."""
    found = error.errors(include_url=False, include_input=False)
    first = found[0]
    if first["type"] == "json_invalid":
        return MalformedBody(f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}.")
    path = _request_path(first["loc"])
    message = _MESSAGES.get(first["type"], _predicate(first["msg"]))
    if len(found) > 1:
        message += f" ({len(found) - 1} more found.)"
    hint = None
    if first["type"] == "extra_forbidden":
        near = get_close_matches(str(path[-1]), _fields_at(first["loc"][:-1], model), n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else None
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "type")
        message = _kinds(first["ctx"].get("expected_tags", "")) or "is required."
    if not path:
        message = f"the body {message}"
    kind = InvalidQuestion if path[:1] == ("questions",) and len(path) > 1 else InvalidRequest
    return kind(message, path=path, hint=hint)


def _kinds(tags: str) -> str:
    """Return what is said of a type that is none of these: pydantic lists them in quotes."""
    *others, last = tags.replace("'", "").split(", ")
    return f"must be {', '.join(others)} or {last}." if others else ""


def _predicate(message: str) -> str:
    return f"{_SUBJECT.sub('', message).replace(' after validation', '').rstrip('.')}."


def _request_path(location: tuple[int | str, ...]) -> Path:
    """Drop what pydantic adds to a path: the type behind an id or a place in a list, the form of a field."""
    parts = list(location)
    start = 1 if parts[:1] == ["against"] else 0
    if parts[start : start + 1] == ["read"] and parts[start + 2 : start + 3] in ([SAME], [BY_TYPE]):
        del parts[start + 2]
    behind_id = start + 2
    if parts[behind_id - 2 : behind_id - 1] == ["questions"] and len(parts) > behind_id:
        del parts[behind_id]
    return tuple(part for index, part in enumerate(parts) if not _is_added(parts, index))


def _is_added(parts: Sequence[int | str], index: int) -> bool:
    """Tell whether a part of a path names a form, or which kind of part stands in a list of them."""
    before, before_that = (parts[index - back] if index >= back else None for back in (1, 2))
    if parts[index] in (TEXT, PARTS, OBJECT):
        return before in _FORMED or isinstance(before, int)
    return isinstance(before, int) and before_that == PARTS


def _fields_at(location: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """Return the field names of the object at a location, by walking the model's JSON schema."""
    schema: dict[str, Any] = model.model_json_schema()
    definitions = schema.get("$defs", {})

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        for arm in (*node.get("anyOf", ()), *node.get("oneOf", ())):
            node = resolved(arm) if "oneOf" in arm else arm if "$ref" in arm else node
        name = node.get("$ref", "").rpartition("/")[2]
        return definitions[name] if name else node

    node = schema
    for part in location:
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"].get(part, "")}
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        elif part == BY_TYPE and "questions" not in location:
            continue
        elif isinstance(part, int):
            node = node.get("items", {})
        else:
            extra = node.get("additionalProperties", {})
            node = extra if isinstance(extra, dict) else {}
        node = resolved(node)
    return list(node.get("properties", ()))
