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
from structured_server.wire.server_state import ModelsResponse, ReadyResponse
from structured_server.wire.systemone import SystemOneRequest
from structured_server.wire.systemone_answer import SystemOneResponse

_REFERENCE = "#/components/schemas/{model}"
JSON = "application/json"

_ERRORS = {
    400: "Not JSON.",
    401: "An API key is missing.",
    403: "The API key is wrong.",
    404: "The model is not served here.",
    413: "The state or the body is too long.",
    415: "The body is compressed in a way that is not read here.",
    422: "A field is wrong.",
    429: "The API key's own limit; Retry-After says when to come back.",
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
# A body of System One's is answered, and refused, as on its own route.
_DECISIONS_ERRORS = _SYSTEM_ONE_ERRORS | {
    400: "Not JSON, or a field of OpenAI's is wrong.",
    401: "The API key is missing or wrong.",
    422: "A field of System One's is wrong.",
    503: "Loading or overloaded; Retry-After says when to come back.",
    529: "Overloaded, to a body of System One's; Retry-After says when to come back.",
}
_ERROR_BODIES: dict[str, type[BaseModel]] = {
    DECIDE.name: ErrorResponse,
    SYSTEM_ONE.name: SystemOneErrorResponse,
    OPENAI.name: OpenAIErrorResponse,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A POST: its paths, of which so many are documented, what it takes and what it answers.

    `also` is the operation whose bodies it takes and answers besides its own.
    """

    summary: str
    description: str
    paths: tuple[str, ...]
    answer: str  # what a 200 is
    errors: dict[int, str]
    dialect: Dialect = DECIDE
    request: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    shown: int = 1
    multipart: bool = False
    request_schemas: dict[str, Any] = field(default_factory=dict)  # further media types
    response_schemas: dict[str, Any] = field(default_factory=dict)
    also: Operation | None = None

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
_CHAT = {
    "type": "object",
    "description": "OpenAI's chat request. The engine sees those of its fields that make sense to it.",
    "required": ["messages"],
    "properties": {
        "model": {
            "type": ["string", "null"],
            "description": "The served model's name; where the system message holds questions, any.",
        },
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
    },
}
_CHAT_ANSWER = {
    "type": "object",
    "description": "OpenAI's chat completion; where questions were asked, with x_decision.",
}
_EVENTS = {"type": "string", "description": "With stream, what the engine writes, as it comes."}
_SYSTEM_ONE = Operation(
    "System One",
    "Answer a request of TypeSafe's System One. Questions are read apart unless asked otherwise.",
    paths.SYSTEMONE,
    "One answer for each question.",
    _SYSTEM_ONE_ERRORS,
    SYSTEM_ONE,
    request=SystemOneRequest,
    response=SystemOneResponse,
    multipart=True,
)


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


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
        multipart=True,
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
        response_schemas={MEDIA_TYPE: {"anyOf": [_reference(line) for line in BATCH_LINES]}},
    ),
    "systemone": _SYSTEM_ONE,
    "decisions": Operation(
        "OpenAI Decisions",
        "Answer a request of OpenAI's Decisions. Questions are read apart unless asked otherwise. "
        "A System One body is answered as one.",
        paths.DECISIONS,
        "One answer for each question, in their order.",
        _DECISIONS_ERRORS,
        OPENAI,
        request=DecisionsRequest,
        response=DecisionsResponse,
        multipart=True,
        also=_SYSTEM_ONE,
    ),
    "chat": Operation(
        "Chat completions",
        "Decide where the system message holds questions; else have the engine write, where it does.",
        paths.CHAT,
        "A chat completion. Its content is the answers as JSON, or what the engine wrote.",
        _OPENAI_ERRORS,
        OPENAI,
        request_schemas={JSON: _CHAT},
        response_schemas={JSON: _CHAT_ANSWER, "text/event-stream": _EVENTS},
    ),
}


_LIVE = {"type": "object", "required": ["live"], "properties": {"live": {"const": True}}}
_OPENAI_ERROR = {JSON: _reference(OpenAIErrorResponse)}
_GETS: dict[str, dict[int, tuple[str, dict[str, Any]]]] = {
    paths.MODELS[0]: {
        200: ("The served model under each of its names.", {JSON: _reference(ModelsResponse)}),
        401: (_OPENAI_ERRORS[401], _OPENAI_ERROR),
        429: (_OPENAI_ERRORS[429], _OPENAI_ERROR),
    },
    "/live": {200: ("This server runs.", {JSON: _LIVE})},
    "/health": {200: ("This server runs.", {JSON: _LIVE})},
    "/ready": {
        200: ("Decisions can be made.", {JSON: _reference(ReadyResponse)}),
        503: ("Not yet, or no longer.", {JSON: _reference(ReadyResponse)}),
    },
    "/metrics": {200: ("In Prometheus's text format.", {"text/plain": {"type": "string"}})},
}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application that serves the operations."""
    if app.openapi_schema:
        return app.openapi_schema
    whole = FastAPI.openapi(app)
    models = [each for operation in OPERATIONS.values() for each in (operation.request, operation.response)]
    models += [*BATCH_LINES, *_ERROR_BODIES.values(), ModelsResponse, ReadyResponse]
    wanted = dict.fromkeys(each for each in models if each is not None)
    _, schemas = models_json_schema([(each, "validation") for each in wanted], ref_template=_REFERENCE)
    whole.setdefault("components", {})["schemas"] = schemas["$defs"]
    for operation in OPERATIONS.values():
        for path in operation.documented:
            _describe(whole["paths"][path]["post"], operation)
    for path, answers in _GETS.items():
        responses = whole["paths"][path]["get"]["responses"]
        for status, (text, content) in answers.items():
            responses[str(status)] = {"description": text, "content": _content(content)}
    app.openapi_schema = whole
    return whole


def _describe(described: dict[str, Any], operation: Operation) -> None:
    content = dict(operation.request_schemas)
    if operation.request is not None:
        content[JSON] = _request_schema(operation)
        if operation.multipart:
            content["multipart/form-data"] = _form_of(content[JSON])
    described["requestBody"] = {"required": True, "content": _content(content)}
    of_kinds = (operation,) if operation.also is None else (operation, operation.also)
    answers = dict(operation.response_schemas)
    if operation.response is not None:
        answers[JSON] = _any_of([_reference(each.response) for each in of_kinds if each.response is not None])
    described["responses"]["200"]["content"] = _content(answers)
    error = _any_of([_reference(_ERROR_BODIES[each.dialect.name]) for each in of_kinds])
    for status in operation.errors:
        described["responses"][str(status)]["content"] = _content({JSON: error})


def _request_schema(operation: Operation) -> dict[str, Any]:
    assert operation.request is not None
    own = _reference(operation.request)
    if operation.also is None:
        return own
    # What makes a body one of the other kind: a state, or questions by id.
    return {"anyOf": [{"allOf": [own, {"not": {"required": ["state"]}}]}, _request_schema(operation.also)]}


def _form_of(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "The part `request` holds the JSON, every other part an image.",
        "required": ["request"],
        "properties": {"request": request},
        "additionalProperties": {"type": "string", "format": "binary"},
    }


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}
