"""The OpenAPI document: its operations, their bodies made from the types that parse and write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from structured_server.api import paths
from structured_server.api.errors import DECIDE, OPENAI, SYSTEM_ONE, Dialect
from structured_server.wire.batch import BATCH_LINES, LINE_TYPES, MEDIA_TYPE, BatchRequest
from structured_server.wire.decide_request import DecideRequest
from structured_server.wire.decide_response import DecideResponse, ErrorResponse
from structured_server.wire.decisions import DecisionsRequest
from structured_server.wire.decisions_answer import DecisionsResponse
from structured_server.wire.error_bodies import OpenAIErrorResponse, SystemOneErrorResponse
from structured_server.wire.lint import LintRequest, LintResponse
from structured_server.wire.systemone import SystemOneRequest
from structured_server.wire.systemone_answer import SystemOneResponse

_REFERENCE = "#/components/schemas/{model}"

_ERRORS = {
    400: "Not JSON.",
    401: "An API key is missing.",
    403: "The API key is wrong.",
    404: "The model is not served here.",
    413: "The state or the body is too long.",
    415: "The body is compressed in a way that is not read here.",
    422: "A field is wrong.",
    502: "The engine failed.",
    503: "Loading or overloaded; Retry-After says when to come back.",
    504: "The deadline passed.",
}
_LINT_ERRORS = {status: text for status, text in _ERRORS.items() if status < 500} | {
    413: "The body is too long."
}
_SYSTEM_ONE_ERRORS = _ERRORS | {
    401: "The API key is wrong.",
    403: "An API key is missing.",
    503: "Loading; Retry-After says when to come back.",
    529: "Overloaded; Retry-After says when to come back.",
}
_OPENAI_ERRORS = {status: text for status, text in _ERRORS.items() if status not in (403, 422)} | {
    400: "Not JSON, or a field is wrong.",
    401: "The API key is missing or wrong.",
}
_ERROR_BODIES: dict[str, type[BaseModel]] = {
    DECIDE.name: ErrorResponse,
    SYSTEM_ONE.name: SystemOneErrorResponse,
    OPENAI.name: OpenAIErrorResponse,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A POST: its paths, of which so many are documented, what it takes and what it answers."""

    summary: str
    description: str
    paths: tuple[str, ...]
    answer: str  # what a 200 is
    errors: dict[int, str]
    dialect: Dialect = DECIDE
    request: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    shown: int = 1
    request_schemas: dict[str, Any] = field(default_factory=dict)  # further media types

    @property
    def documented(self) -> tuple[str, ...]:
        """The paths that stand in the document."""
        return self.paths[: self.shown]

    @property
    def responses(self) -> dict[int | str, dict[str, Any]]:
        """Statuses with what they mean."""
        return {
            200: {"description": self.answer},
            **{status: {"description": text} for status, text in sorted(self.errors.items())},
        }


_LINES = {"type": "string", "description": "The object without items, then one item a line."}
_FORM = {
    "type": "object",
    "description": "The part `request` holds the JSON, every other part an image.",
    "properties": {"request": {"type": "string"}},
    "required": ["request"],
}

OPERATIONS = {
    "decide": Operation(
        "Decide",
        "Read a state and answer typed questions about it, each with a probability distribution.",
        paths.DECIDE,
        "One distribution for each question.",
        _ERRORS,
        request=DecideRequest,
        response=DecideResponse,
        shown=2,
    ),
    "lint": Operation(
        "Lint questions",
        "Report what questions come to: canvases, labels, reads, tokens, warnings. Nothing is read.",
        paths.LINT,
        "What the questions come to.",
        _LINT_ERRORS,
        request=LintRequest,
        response=LintResponse,
        shown=2,
    ),
    "batch": Operation(
        "Decide a batch",
        "Answer one question set about up to 1,000 states, line by line in their order.",
        paths.BATCH,
        "Lines: a header, one for each item, an end; others while waiting.",
        _ERRORS,
        request=BatchRequest,
        shown=2,
        request_schemas=dict.fromkeys(sorted(LINE_TYPES), _LINES),
    ),
    "systemone": Operation(
        "System One",
        "Answer a request of TypeSafe's System One. Questions are read apart unless asked otherwise.",
        paths.SYSTEMONE,
        "One answer for each question.",
        _SYSTEM_ONE_ERRORS,
        SYSTEM_ONE,
        request=SystemOneRequest,
        response=SystemOneResponse,
        request_schemas={"multipart/form-data": _FORM},
    ),
    "decisions": Operation(
        "OpenAI Decisions",
        "Answer a request of OpenAI's Decisions. Questions are read apart unless asked otherwise. "
        "A System One body is answered as one.",
        paths.DECISIONS,
        "One answer for each question, in their order.",
        _OPENAI_ERRORS,
        OPENAI,
        request=DecisionsRequest,
        response=DecisionsResponse,
    ),
    "chat": Operation(
        "Chat completions",
        "Decide where the system message holds questions; else have the engine write, where it does.",
        paths.CHAT,
        "A chat completion. Its content is the answers as JSON, or what the engine wrote.",
        _OPENAI_ERRORS,
        OPENAI,
    ),
}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application that serves the operations."""
    if app.openapi_schema:
        return app.openapi_schema
    whole = FastAPI.openapi(app)
    models = [each for operation in OPERATIONS.values() for each in (operation.request, operation.response)]
    models += [*BATCH_LINES, *_ERROR_BODIES.values()]
    wanted = dict.fromkeys(each for each in models if each is not None)
    _, schemas = models_json_schema([(each, "validation") for each in wanted], ref_template=_REFERENCE)
    whole.setdefault("components", {})["schemas"] = schemas["$defs"]
    for operation in OPERATIONS.values():
        for path in operation.documented:
            _describe(whole["paths"][path]["post"], operation)
    app.openapi_schema = whole
    return whole


def _describe(described: dict[str, Any], operation: Operation) -> None:
    if operation.request is not None:
        others = {kind: {"schema": schema} for kind, schema in operation.request_schemas.items()}
        described["requestBody"] = {"required": True, "content": {**_json(operation.request), **others}}
    if operation.response is not None:
        described["responses"]["200"]["content"] = _json(operation.response)
    elif operation.paths is paths.BATCH:
        lines = [{"$ref": _REFERENCE.format(model=line.__name__)} for line in BATCH_LINES]
        described["responses"]["200"]["content"] = {MEDIA_TYPE: {"schema": {"anyOf": lines}}}
    for status in operation.errors:
        described["responses"][str(status)]["content"] = _json(_ERROR_BODIES[operation.dialect.name])


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}
