"""The FastAPI application: its routes and what stands around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

import structured_server
from structured_server.api.batch import decide_batch
from structured_server.api.decide import decide
from structured_server.api.errors import error_response, handle, json_response
from structured_server.api.keys import ApiKeys
from structured_server.api.lint import lint
from structured_server.api.request_log import RequestLog
from structured_server.api.service import Service
from structured_server.errors import MethodNotAllowed, StructuredServerError, UnknownRoute
from structured_server.readiness import RETRY_AFTER_S
from structured_server.wire.batch import BATCH_LINES, LINE_TYPES, MEDIA_TYPE, BatchRequest
from structured_server.wire.decide_request import DecideRequest
from structured_server.wire.decide_response import DecideResponse, ErrorResponse
from structured_server.wire.lint import LintRequest, LintResponse

_REFERENCE = "#/components/schemas/{model}"
_ERRORS = {
    400: "Not JSON.",
    401: "An API key is missing.",
    403: "The API key is wrong.",
    404: "The model is not served here.",
    413: "The state or the body is too long.",
    415: "The body is compressed.",
    422: "A field is wrong.",
    502: "The engine failed.",
    503: "Loading or overloaded; Retry-After says when to come back.",
    504: "The deadline passed.",
}
_LINT_ERRORS = {status: text for status, text in _ERRORS.items() if status < 500} | {
    413: "The body is too long."
}


def create_app(service: Service) -> FastAPI:
    """Return the application that serves `service`, and follows its backend while it runs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(service.readiness.run())
        yield
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await service.backend.close()

    app = FastAPI(
        title="structured-server",
        version=structured_server.__version__,
        summary=structured_server.__doc__,
        lifespan=lifespan,
        redoc_url=None,
    )
    app.add_exception_handler(StructuredServerError, handle)
    app.add_exception_handler(HTTPException, _handle_http)
    # The last one added stands outermost.
    app.add_middleware(ApiKeys, keys=service.settings.api_key)
    app.add_middleware(RequestLog, metrics=service.metrics)
    _add_routes(app, service)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    async def decide_route(request: Request) -> Response:
        """Read a state and answer typed questions about it, each with a probability distribution."""
        return await decide(request, service)

    for path in ("/decide", "/v1/decide"):
        app.post(
            path,
            tags=["decisions"],
            summary="Decide",
            response_model=None,
            responses={
                200: {"description": "One distribution for each question."},
                **{status: {"description": text} for status, text in _ERRORS.items()},
            },
        )(decide_route)

    async def lint_route(request: Request) -> Response:
        """Report what questions come to: canvases, labels, reads, tokens, warnings. Nothing is read."""
        return await lint(request, service)

    for path in ("/decide/lint", "/v1/decide/lint"):
        app.post(
            path,
            tags=["decisions"],
            summary="Lint questions",
            response_model=None,
            responses={
                200: {"description": "What the questions come to."},
                **{status: {"description": text} for status, text in _LINT_ERRORS.items()},
            },
        )(lint_route)

    async def batch_route(request: Request) -> Response:
        """Answer one question set about up to 1,000 states, line by line in their order."""
        return await decide_batch(request, service)

    for path in ("/decide/batch", "/v1/decide/batch"):
        app.post(
            path,
            tags=["decisions"],
            summary="Decide a batch",
            response_model=None,
            responses={
                200: {"description": "Lines: a header, one for each item, an end; others while waiting."},
                **{status: {"description": text} for status, text in _ERRORS.items()},
            },
        )(batch_route)

    @app.get("/health", tags=["operations"], summary="Alias of /live")
    @app.get("/live", tags=["operations"], summary="Whether this server runs")
    async def live() -> Response:
        """Answer 200 for as long as this process serves, whatever the engine does."""
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
    request_id = request.state.request_id
    if error.status_code == 405:
        response = error_response(MethodNotAllowed(f"{request.method} is not for this path."), request_id)
        response.headers.update(error.headers or {})
        return response
    return error_response(UnknownRoute("there is no such path.", hint="See /docs."), request_id)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, bodies of the decision routes made from the types that parse and write."""
    if app.openapi_schema:
        return app.openapi_schema
    document = FastAPI.openapi(app)
    _, schemas = models_json_schema(
        [
            (DecideRequest, "validation"),
            (DecideResponse, "validation"),
            (ErrorResponse, "validation"),
            (LintRequest, "validation"),
            (LintResponse, "validation"),
            (BatchRequest, "validation"),
            *((line, "validation") for line in BATCH_LINES),
        ],
        ref_template=_REFERENCE,
    )
    document.setdefault("components", {})["schemas"] = schemas["$defs"]
    for path in ("/decide", "/v1/decide"):
        operation = document["paths"][path]["post"]
        operation["requestBody"] = {"required": True, "content": _json("DecideRequest")}
        operation["responses"]["200"]["content"] = _json("DecideResponse")
        for status in _ERRORS:
            operation["responses"][str(status)]["content"] = _json("ErrorResponse")
    for path in ("/decide/lint", "/v1/decide/lint"):
        operation = document["paths"][path]["post"]
        operation["requestBody"] = {"required": True, "content": _json("LintRequest")}
        operation["responses"]["200"]["content"] = _json("LintResponse")
        for status in _LINT_ERRORS:
            operation["responses"][str(status)]["content"] = _json("ErrorResponse")
    for path in ("/decide/batch", "/v1/decide/batch"):
        operation = document["paths"][path]["post"]
        text = {"type": "string", "description": "The object without items, then one item a line."}
        in_lines = {kind: {"schema": text} for kind in sorted(LINE_TYPES)}
        operation["requestBody"] = {"required": True, "content": {**_json("BatchRequest"), **in_lines}}
        lines = [{"$ref": _REFERENCE.format(model=line.__name__)} for line in BATCH_LINES]
        operation["responses"]["200"]["content"] = {MEDIA_TYPE: {"schema": {"anyOf": lines}}}
        for status in _ERRORS:
            operation["responses"][str(status)]["content"] = _json("ErrorResponse")
    app.openapi_schema = document
    return document


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model)}}}
