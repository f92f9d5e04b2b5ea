"""Middleware that asks for an API key where the server wants one."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from structured_server.api.errors import error_response
from structured_server.api.request_log import PROBES
from structured_server.errors import StructuredServerError, Unavailable
from structured_server.keys import Gate
from structured_server.metrics import Metrics

OPEN_PATHS = PROBES | {"/openapi.json", "/docs"}


class ApiKeys:
    """Lets a request through with a key as its bearer token; probes and metrics stay open.

    Whoever is not let through is answered before anything of the body is read.
    """

    def __init__(self, app: ASGIApp, *, gate: Gate, metrics: Metrics) -> None:
        self._app = app
        self._gate = gate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Who sends it stands in the scope's state from here on."""
        if scope["type"] == "http" and not self._gate.open and scope["path"] not in OPEN_PATHS:
            state = scope["state"]
            try:
                admitted = await self._gate.admit(Headers(scope=scope).get("authorization"))
            except StructuredServerError as error:
                if isinstance(error, Unavailable):
                    self._metrics.refused.labels(error.code).inc()
                await error_response(error, state["request_id"], state["dialect"])(scope, receive, send)
                return
            self._metrics.key_requests.labels(admitted.label).inc()
            state.update(key=admitted.name, cache_salt=admitted.cache_salt)
        await self._app(scope, receive, send)
