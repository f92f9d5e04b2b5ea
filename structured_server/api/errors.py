"""One table from error class to HTTP status, and the responses made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from structured_server import errors
from structured_server.errors import StructuredServerError, Unavailable
from structured_server.wire.decide_response import render_error

STATUS: dict[type[StructuredServerError], int] = {
    errors.MalformedBody: 400,
    errors.UnsupportedEncoding: 415,
    errors.BodyTooLarge: 413,
    errors.StateTooLong: 413,
    errors.InvalidRequest: 422,
    errors.UnknownRoute: 404,
    errors.MethodNotAllowed: 405,
    errors.UnknownModel: 404,
    errors.MissingKey: 401,
    errors.WrongKey: 403,
    errors.Loading: 503,
    errors.Overloaded: 503,
    errors.DeadlineExceeded: 504,
    errors.UpstreamError: 502,
    errors.SettingsError: 500,
    errors.TokenizerError: 500,
}


class InternalError(StructuredServerError):
    """A bug of ours. The message tells nothing about it; the log does."""

    code = "internal"
    retryable = True


STATUS[InternalError] = 500


def status_of(error: StructuredServerError) -> int:
    """Return the HTTP status of an error: its class's, or that of the nearest class above it."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response written by orjson."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def error_response(error: StructuredServerError, request_id: str) -> Response:
    """Return an error as a response, with the headers that belong to it."""
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable) and error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, errors.MissingKey):
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(render_error(error, request_id), status_of(error), headers)


async def handle(request: Request, error: Exception) -> Response:
    """Answer an error that was raised on purpose anywhere below a route."""
    assert isinstance(error, StructuredServerError)
    return error_response(error, request.state.request_id)
