"""The FastAPI application: its routes and what stands around them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

import structured_server
from structured_server.api import openapi
from structured_server.api.batch import decide_batch
from structured_server.api.canary import canary_of
from structured_server.api.chat import chat
from structured_server.api.decide import decide
from structured_server.api.decisions import decisions
from structured_server.api.errors import (
    error_response,
    handle,
    handle_gone,
    handle_unforeseen,
    json_response,
)
from structured_server.api.keys import ApiKeys
from structured_server.api.lint import lint
from structured_server.api.models import models
from structured_server.api.openapi import OPERATIONS
from structured_server.api.operations import Answer, Operations, Served
from structured_server.api.paths import MODELS
from structured_server.api.request_log import RequestLog
from structured_server.api.service import Service
from structured_server.api.systemone import systemone
from structured_server.errors import MethodNotAllowed, StructuredServerError, Unavailable, UnknownRoute
from structured_server.readiness import RETRY_AFTER_S

_ANSWERS: dict[str, Callable[[Request, Service], Awaitable[Response]]] = {
    "decide": decide,
    "batch": decide_batch,
    "lint": lint,
    "systemone": systemone,
    "decisions": decisions,
    "chat": chat,
}


class Application(FastAPI):
    """The framework behind what is ours: neither its middleware nor its router is in an operation's way."""

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the application's life."""
        await (self.front if scope["type"] == "http" else self.framework)(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what is left to the framework."""
        await super().__call__(scope, receive, send)


def create_app(service: Service) -> Application:
    """Return the application that serves `service`, and follows its backend while it runs.

    Raises:
        SettingsError: the canary's file cannot be used.
    """
    canary = canary_of(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(service.readiness.run())
        watching = [asyncio.create_task(each.watch()) for each in service.watched]
        idling = [asyncio.create_task(canary.run())] if canary else []
        if service.decision_log is not None:
            service.decision_log.start()
        yield
        for task in (following, *watching, *idling):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await service.backend.close()
        if service.decision_log is not None:
            await asyncio.to_thread(service.decision_log.close)

    async def handle_counted(request: Request, error: Exception) -> Response:
        if isinstance(error, Unavailable):
            service.metrics.refused.labels(error.code).inc()
        return await handle(request, error)

    app = Application(
        title="structured-server",
        version=structured_server.__version__,
        summary=structured_server.__doc__,
        lifespan=lifespan,
        redoc_url=None,
    )
    app.add_exception_handler(StructuredServerError, handle_counted)
    app.add_exception_handler(ClientDisconnect, handle_gone)
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(Exception, handle_unforeseen)
    served: dict[str, Served] = {}
    for name, answer in _ANSWERS.items():
        _add_operation(app, name, served, _of(answer, service))
    operations = Operations(app.framework, served=served, on_error=handle_counted, on_gone=handle_gone)
    keys = ApiKeys(operations, gate=service.gate, metrics=service.metrics)
    app.front = RequestLog(keys, metrics=service.metrics)
    _add_routes(app, service)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    return app


def _of(answer: Callable[[Request, Service], Awaitable[Response]], service: Service) -> Answer:
    async def route(request: Request) -> Response:
        return await answer(request, service)

    return route


def _add_operation(app: FastAPI, name: str, served: dict[str, Served], answer: Answer) -> None:
    """Serve a POST under all its paths, the first of which is documented: by its route in the application."""
    operation = OPERATIONS[name]

    async def route(request: Request) -> Response:
        return await answer(request)

    route.__name__ = name
    route.__doc__ = operation.description
    for path in operation.paths:
        served[path] = Served(path, answer)
        app.post(
            path,
            tags=["decisions"],
            summary=operation.summary,
            response_model=None,
            include_in_schema=path in operation.documented,
            responses=operation.responses,
        )(route)


def _add_routes(app: FastAPI, service: Service) -> None:
    serving_since = time.time()

    async def models_route() -> Response:
        """List the served model, in a shape that TypeSafe's and OpenAI's clients parse."""
        return models(service, serving_since)

    for path in MODELS:
        app.get(
            path,
            tags=["decisions"],
            summary="List models",
            response_model=None,
            include_in_schema=path == MODELS[0],
        )(models_route)

    @app.get("/health", tags=["operations"], summary="Alias of /live")
    @app.get("/live", tags=["operations"], summary="Whether this server runs")
    async def live() -> Response:
        """Answer 200 while this process serves, unless its engine has been lost for too long."""
        lost_s, limit = service.readiness.lost_s, service.settings.dead_after_s
        if limit and lost_s > limit:
            return json_response({"live": False, "engine_lost_s": lost_s}, 503)
        return json_response({"live": True})

    @app.get("/ready", tags=["operations"], summary="Whether decisions can be made")
    async def ready() -> Response:
        """Answer 200 when decisions can be made, else 503 with the step, its seconds and the problem."""
        now = service.readiness.now
        if now.ready:
            return json_response(asdict(now))
        return json_response(asdict(now), 503, {"Retry-After": str(RETRY_AFTER_S)})

    @app.get("/metrics", tags=["operations"], summary="Prometheus metrics")
    async def metrics() -> Response:
        """Return all metrics as text."""
        return Response(service.metrics.render(), media_type=service.metrics.content_type)


async def _handle_http(request: Request, error: Exception) -> Response:
    """Answer what the router itself refuses, in our own shape."""
    assert isinstance(error, HTTPException)
    request_id, dialect = request.state.request_id, request.state.dialect
    if error.status_code == 405:
        refusal = MethodNotAllowed(f"{request.method} is not for this path.")
        response = error_response(refusal, request_id, dialect)
        response.headers.update(error.headers or {})
        return response
    return error_response(UnknownRoute("there is no such path.", hint="See /docs."), request_id, dialect)
