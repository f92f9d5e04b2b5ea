"""`POST /v1/systemone`: TypeSafe's System One, from bytes to bytes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from structured_server.api.bodies import Received, read_parts
from structured_server.api.errors import json_response
from structured_server.api.query import independent_query_of, outcome_of
from structured_server.api.service import Service
from structured_server.wire.systemone import parse
from structured_server.wire.systemone_answer import render


async def systemone(request: Request, service: Service) -> Response:
    """Answer one System One request.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`.
    """
    return await answer(await read_parts(request, service.settings.max_body_bytes), request, service)


async def answer(received: Received, request: Request, service: Service) -> Response:
    """Answer a System One request that has been received.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`.
    """
    asked = parse(received.json, received.parts)
    outcome, about = await outcome_of(independent_query_of(asked, service), request, service)
    return json_response(render(outcome, **about))
