"""From what pydantic found wrong to one error for people."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from structured_server.errors import CallerError, InvalidQuestion, InvalidRequest, MalformedBody, Path

_MESSAGES = {
    "extra_forbidden": "is no field that is known here.",
    "missing": "is required.",
}


def caller_error(error: ValidationError, model: type[BaseModel]) -> CallerError:
    """Return the first thing that was wrong, with its path, and the field nearest to an unknown one."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
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
        message = "must be noul (or binary, bool), choice or score."
    if not path:
        message = f"the body {message}"
    kind = InvalidQuestion if path[:1] == ("questions",) and len(path) > 1 else InvalidRequest
    return kind(message, path=path, hint=hint)


def _predicate(message: str) -> str:
    return f"{message.removeprefix('Input ').rstrip('.')}."


def _request_path(location: tuple[int | str, ...]) -> Path:
    """Drop what pydantic adds to a path: the question's type behind its id."""
    parts = list(location)
    if parts[:1] == ["questions"] and len(parts) > 2:
        del parts[2]
    return tuple(parts)


def _fields_at(location: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """Return the field names of the object at a location, by walking the model's JSON schema."""
    schema: dict[str, Any] = model.model_json_schema()
    definitions = schema.get("$defs", {})

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        for arm in node.get("anyOf", ()):
            if "$ref" in arm:
                node = arm
        name = node.get("$ref", "").rpartition("/")[2]
        return definitions[name] if name else node

    node = schema
    for part in location:
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"].get(part, "")}
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        else:
            extra = node.get("additionalProperties", {})
            node = extra if isinstance(extra, dict) else {}
        node = resolved(node)
    return list(node.get("properties", ()))
