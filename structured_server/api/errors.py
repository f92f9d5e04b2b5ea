"""One table from error class to HTTP status, and the responses made from it in each wire format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from structured_server import errors
from structured_server.api.paths import CHAT, DECISIONS, MODELS, SYSTEMONE
from structured_server.errors import StructuredServerError, Unavailable
from structured_server.wire.error_bodies import decide_error, openai_error, systemone_error

GONE = 499  # what proxies log for a client that left; nobody receives it
RETRY_AFTER_S = 1  # where an error that may pass does not say itself when to come back

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
    errors.DrawsMissing: 503,
    errors.RateLimited: 429,
    errors.IdentityUnchecked: 503,
    errors.DeadlineExceeded: 504,
    errors.UpstreamError: 502,
    errors.SettingsError: 500,
    errors.TokenizerError: 500,
    errors.DecisionLogError: 500,
}


class InternalError(StructuredServerError):
    """A bug of ours. The message tells nothing about it; the log does."""

    code = "internal"
    retryable = True


STATUS[InternalError] = 500


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a wire format says errors: their body, and the statuses in which it differs from `STATUS`."""

    name: str
    body: Callable[[StructuredServerError, str], dict[str, Any]]
    statuses: Mapping[type[StructuredServerError], int] = field(default_factory=dict)

    def status_of(self, error: StructuredServerError) -> int:
        """Return the HTTP status of an error: its class's, or that of the nearest class above it."""
        table = {**STATUS, **self.statuses}
        return next(table[kind] for kind in type(error).__mro__ if kind in table)


DECIDE = Dialect("decide", decide_error)
SYSTEM_ONE = Dialect(
    "systemone",
    systemone_error,
    # A key that is missing is forbidden, one that is wrong unauthorised: the other way round than elsewhere.
    {errors.MissingKey: 403, errors.WrongKey: 401, errors.MalformedBody: 422, errors.Overloaded: 529},
)
OPENAI = Dialect("openai", openai_error, {errors.InvalidRequest: 400, errors.WrongKey: 401})


def dialect_of(path: str) -> Dialect:
    """Return the wire format that a path speaks, whether it is a route or not."""
    if path in SYSTEMONE:
        return SYSTEM_ONE
    if path in (*DECISIONS, *CHAT, *MODELS):
        return OPENAI
    if path.startswith("/v1/") and not path.startswith("/v1/decide"):
        return SYSTEM_ONE
    return DECIDE


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response written by orjson."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def error_response(error: StructuredServerError, request_id: str, dialect: Dialect = DECIDE) -> Response:
    """Return an error as a response, with the headers that belong to it."""
    headers: dict[str, str] = {}
    if error.retryable:
        own = error.retry_after_s if isinstance(error, Unavailable) else None
        headers["Retry-After"] = str(RETRY_AFTER_S if own is None else own)
    if isinstance(error, errors.MissingKey):
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(dialect.body(error, request_id), dialect.status_of(error), headers)


async def handle(request: Request, error: Exception) -> Response:
    """Answer an error that was raised on purpose anywhere below a route."""
    assert isinstance(error, StructuredServerError)
    return error_response(error, request.state.request_id, request.state.dialect)


def unforeseen(request_id: str, dialect: Dialect) -> Response:
    """Return the answer to a request that met a bug of ours, which is logged elsewhere."""
    error = InternalError("something went wrong here; the log has it under this request's id.")
    return error_response(error, request_id, dialect)


async def handle_unforeseen(request: Request, _: Exception) -> Response:
    """Answer for the framework, which raises the error again."""
    return unforeseen(request.state.request_id, request.state.dialect)


async def handle_gone(_request: Request, error: Exception) -> Response:
    """End a request whose sender has left."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=GONE)
