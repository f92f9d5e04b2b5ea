"""`POST /decide`: from bytes to bytes, in one straight line."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from structured_server.api.bodies import read_parts
from structured_server.api.errors import json_response
from structured_server.api.query import outcome_of, query_of
from structured_server.api.service import Service
from structured_server.wire.decide_rendering import render
from structured_server.wire.decide_request import DecideRequest
from structured_server.wire.validation import caller_error


async def decide(request: Request, service: Service) -> Response:
    """Answer one decision.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`.
    """
    received = await read_parts(request, service.settings.max_body_bytes)
    asked = _parse(received.json)
    request.state.log_fields = {"metadata": asked.metadata} if asked.metadata else {}
    state, images = asked.state_text(), asked.pictures(received.images)
    query = query_of(
        asked, service, state, images, schema=service.known_questions.schema_of(asked, received.json)
    )
    outcome, about = await outcome_of(query, request, service, asked.metadata)
    return json_response(render(outcome, **about, metadata=asked.metadata))


def _parse(body: bytes) -> DecideRequest:
    try:
        return DecideRequest.model_validate_json(body)
    except ValidationError as error:
        raise caller_error(error, DecideRequest) from None
