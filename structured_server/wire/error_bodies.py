"""The body of an error in each wire format."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from structured_server import errors
from structured_server.errors import StructuredServerError


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SystemOneField(_Out):
    """What is wrong with a field, and where it is."""

    loc: list[str | int]
    msg: str
    type: str


class SystemOneDetail(_Out):
    """What is wrong with a request as a whole, or with this server."""

    error_type: str
    message: str


class SystemOneErrorResponse(_Out):
    """An error of System One's routes: of a field, of the request, or of the path."""

    detail: list[SystemOneField] | SystemOneDetail | str


class OpenAIErrorDetail(_Out):
    """What was wrong, and with which parameter."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorResponse(_Out):
    """An error in OpenAI's envelope."""

    error: OpenAIErrorDetail


SYSTEMONE_TYPES: dict[type[StructuredServerError], str] = {
    StructuredServerError: "internal_error",
    errors.CallerError: "invalid_request_error",
    errors.StateTooLong: "max_tokens_exceeded",
    errors.UnknownModel: "not_found_error",
    errors.MissingKey: "authentication_error",
    errors.WrongKey: "authentication_error",
    errors.Unavailable: "overloaded_error",
    errors.RateLimited: "rate_limit_error",
    errors.DeadlineExceeded: "upstream_timeout",
    errors.UpstreamError: "upstream_error",
    errors.UpstreamTimeout: "upstream_timeout",
}

OPENAI_TYPES: dict[type[StructuredServerError], str] = {
    StructuredServerError: "server_error",
    errors.CallerError: "invalid_request_error",
    errors.MissingKey: "authentication_error",
    errors.WrongKey: "authentication_error",
    errors.Unavailable: "overloaded_error",
    errors.RateLimited: "rate_limit_error",
}

OPENAI_CODES: dict[type[StructuredServerError], str] = {
    errors.UnknownModel: "model_not_found",
    errors.StateTooLong: "context_length_exceeded",
    errors.MissingKey: "invalid_api_key",
    errors.WrongKey: "invalid_api_key",
    errors.RateLimited: "rate_limit_exceeded",
}


def decide_error(error: StructuredServerError, request_id: str) -> dict[str, Any]:
    """Return an error in the shape of `ErrorResponse`."""
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "path": list(error.path),
            "hint": error.hint,
            "retryable": error.retryable,
            "request_id": request_id,
        }
    }


def systemone_error(error: StructuredServerError, _request_id: str) -> dict[str, Any]:
    """Return an error in System One's shape: what is wrong with a field stands in a list, by its place."""
    if isinstance(error, errors.UnknownRoute):
        return {"detail": "Not Found"}
    if isinstance(error, errors.MethodNotAllowed):
        return {"detail": "Method Not Allowed"}
    if isinstance(error, errors.InvalidRequest | errors.MalformedBody):
        message = error.predicate if error.path else error.message
        return {
            "detail": [
                {"loc": ["body", *_place(error)], "msg": _with_hint(message, error.hint), "type": error.code}
            ]
        }
    kind = nearest(error, SYSTEMONE_TYPES)
    assert kind is not None, "the base class has a type"
    return {"detail": {"error_type": kind, "message": _with_hint(error.message, error.hint)}}


def openai_error(error: StructuredServerError, _request_id: str) -> dict[str, Any]:
    """Return an error in OpenAI's envelope."""
    param = ".".join(map(str, _place(error)))
    message = f"{param} {error.predicate}" if param else error.message
    return {
        "error": {
            "message": _with_hint(message, error.hint),
            "type": nearest(error, OPENAI_TYPES),
            "param": param or None,
            "code": nearest(error, OPENAI_CODES) or error.code,
        }
    }


def nearest(error: StructuredServerError, table: dict[type[StructuredServerError], str]) -> str | None:
    """Return what a table says of an error's class, or of the nearest class above it that it has."""
    return next((table[kind] for kind in type(error).__mro__ if kind in table), None)


def _place(error: StructuredServerError) -> errors.Path:
    """Return where a field is in formats that have no `read`: its options stand at the top there."""
    return error.path[1:] if error.path[:1] == ("read",) else error.path


def _with_hint(message: str, hint: str | None) -> str:
    """Return both as one text, with the names that read options have here."""
    return f"{message} {hint.replace('read.', '')}" if hint else message
