"""`POST /v1/decisions`: OpenAI's Decisions, from bytes to bytes; and System One's body, where that comes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from structured_server.api import systemone
from structured_server.api.bodies import read_parts
from structured_server.api.errors import SYSTEM_ONE, json_response
from structured_server.api.query import independent_query_of, outcome_of
from structured_server.api.service import Service
from structured_server.wire.decisions import is_systemone, parse
from structured_server.wire.decisions_answer import render


async def decisions(request: Request, service: Service) -> Response:
    """Answer one request in the format that its body has.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`.
    """
    received = await read_parts(request, service.settings.max_body_bytes)
    if is_systemone(received.json):
        request.state.dialect = SYSTEM_ONE
        return await systemone.answer(received, request, service)
    asked = parse(received.json, received.images)
    outcome, about = await outcome_of(independent_query_of(asked, service), request, service)
    return json_response(render(outcome, asked.questions, **about))
