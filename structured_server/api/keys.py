"""Middleware that asks for an API key where the server has any."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from structured_server.api.errors import error_response
from structured_server.api.request_log import PROBES
from structured_server.errors import MissingKey, StructuredServerError, WrongKey

OPEN_PATHS = PROBES | {"/openapi.json", "/docs"}


class ApiKeys:
    """Lets a request through with one of the keys as its bearer token; probes and metrics stay open."""

    def __init__(self, app: ASGIApp, *, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and self._keys and scope["path"] not in OPEN_PATHS:
            error = self._refusal(Headers(scope=scope).get("authorization"))
            if error is not None:
                state = scope["state"]
                await error_response(error, state["request_id"], state["dialect"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, authorization: str | None) -> StructuredServerError | None:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return MissingKey("this server wants an API key: send it as `Authorization: Bearer KEY`.")
        # Compared in constant time, all of them: how long it takes tells nothing.
        matches = [hmac.compare_digest(token.strip().encode(), key) for key in self._keys]
        return None if any(matches) else WrongKey("this API key is not one of the server's.")
