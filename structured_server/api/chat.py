"""`POST /v1/chat/completions`: decide what a system message asks; have the engine write all else."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from structured_server.admission import Lane
from structured_server.api.bodies import read_body, unless_gone
from structured_server.api.errors import json_response
from structured_server.api.query import outcome_of, query_of
from structured_server.api.service import Service
from structured_server.backends import Relayed
from structured_server.errors import UnknownModel, UpstreamError
from structured_server.wire.generation import for_engine, parse_object
from structured_server.wire.schema_message import render, schema_query
from structured_server.wire.systemone import MODELS

log = logging.getLogger(__name__)


async def chat(request: Request, service: Service) -> Response:
    """Answer one chat request.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`.
    """
    body = await read_body(request, service.settings.max_body_bytes)
    asked = parse_object(body)
    query = schema_query(asked)
    if query is None:
        return await _written(asked, request, service)
    outcome, about = await outcome_of(
        query_of(
            query,
            service,
            query.state_text(),
            query.pictures,
            options=service.independent_options,
        ),
        request,
        service,
    )
    return json_response(render(outcome, **about))


async def _written(asked: dict[str, object], request: Request, service: Service) -> Response:
    """Have the engine answer, and hand on what it says as it comes."""
    model = asked.get("model")
    if model is not None and model not in (*service.model_names, *MODELS):
        raise UnknownModel(
            "names a model that is not served here.",
            path=("model",),
            hint=f"This server has {service.model}.",
        )
    body = for_engine(asked, service.model, request.state.cache_salt)
    service.readiness.require()
    kept_open = AsyncExitStack()
    opening = service.driver.chat(body, Lane(request.state.key))
    relayed = await unless_gone(request, kept_open.enter_async_context(opening))
    return _Handed(relayed, kept_open)


class _Handed(StreamingResponse):
    """Hands on pieces as they come. The engine's reply is closed however this ends, begun or not.

    Where it breaks off, so does this one: the connection is closed without the end of the body.
    """

    def __init__(self, relayed: Relayed, kept_open: AsyncExitStack) -> None:
        super().__init__(relayed.pieces, relayed.status, headers={"Content-Type": relayed.media_type})
        self._kept_open = kept_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whose body has been read."""
        try:
            async with self._kept_open:
                await super().__call__(scope, receive, send)
        except UpstreamError as error:
            fields = {"request_id": scope["state"]["request_id"]}
            log.warning("a relayed reply broke off: %s", error.message, extra={"fields": fields})
