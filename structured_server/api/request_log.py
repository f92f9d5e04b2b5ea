"""Middleware around every request: its id, metrics and log line, and an answer to what nobody foresaw."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from structured_server import tracing
from structured_server.api.errors import GONE, dialect_of, unforeseen
from structured_server.api.paths import new_id, route_of
from structured_server.metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

ID_HEADERS = (b"x-request-id", b"x-typesafe-request-id")  # what the clients of both kinds read
PROBES = frozenset({"/live", "/health", "/ready", "/metrics"})
_USABLE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class RequestLog:
    """Gives each request an id (the caller's `x-request-id` where usable) and counts it."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["path"] in PROBES:
            await self._serve(scope, receive, send, headers)
            return
        with tracing.request(scope["method"], tracing.place_of(headers)) as span:
            status = await self._serve(scope, receive, send, headers)
            if span is not None:
                _describe(span, scope, status)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> int | None:
        """Serve a request, and return the status that it was answered with, None where it was not."""
        begun = time.monotonic()
        given = headers.get("x-request-id", "")
        request_id = given if _USABLE_ID.fullmatch(given) else new_id("req")
        dialect = dialect_of(scope["path"])
        scope.setdefault("state", {}).update(request_id=request_id, dialect=dialect, key="", cache_salt="")
        written_id = request_id.encode()
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                others = [header for header in message["headers"] if header[0] not in ID_HEADERS]
                message["headers"] = [*others, *((name, written_id) for name in ID_HEADERS)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("unforeseen error", extra={"fields": {"request_id": request_id}})
            if status is None:
                await unforeseen(request_id, dialect)(scope, receive, send_with_id)
        finally:
            self._account(scope, status, time.monotonic() - begun, request_id)
        return status

    def _account(self, scope: Scope, status: int | None, seconds: float, request_id: str) -> None:
        route = route_of(scope)
        self._metrics.requests.labels(route, str(status or "cancelled")).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        level = logging.DEBUG if scope["path"] in PROBES else logging.INFO
        if log.isEnabledFor(level):
            fields = {
                "request_id": request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "ms": round(1000 * seconds, 1),
                "httpRequest": {
                    "requestMethod": scope["method"],
                    "requestUrl": route,
                    "status": status or GONE,
                    "latency": f"{seconds:.6f}s",
                },
                **({"key": key} if (key := scope["state"]["key"]) else {}),
                **scope["state"].get("log_fields", {}),
            }
            log.log(level, "request", extra={"fields": fields})


def _describe(span: Span, scope: Scope, status: int | None) -> None:
    """Say of a request's span what OpenTelemetry's conventions want, and nothing that a caller wrote."""
    from opentelemetry.trace import Status, StatusCode

    route = route_of(scope)
    span.update_name(f"{scope['method']} {route}")
    span.set_attributes(
        {
            "http.request.method": scope["method"],
            "http.route": route,
            "http.response.status_code": status or GONE,
            "structured_server.request_id": scope["state"]["request_id"],
        }
    )
    if status is not None and status >= 500:
        span.set_status(Status(StatusCode.ERROR))
