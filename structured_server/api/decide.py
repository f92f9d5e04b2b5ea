"""`POST /decide`: from bytes to bytes, in one straight line."""

from __future__ import annotations

import secrets

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from structured_server.api.bodies import read_body, unless_gone
from structured_server.api.errors import json_response
from structured_server.api.service import Service
from structured_server.driver import Query
from structured_server.errors import Unavailable, UnknownModel
from structured_server.wire.decide_request import DecideRequest
from structured_server.wire.decide_response import render
from structured_server.wire.validation import caller_error

GONE = 499  # what proxies log for a client that left; nobody receives it


async def decide(request: Request, service: Service) -> Response:
    """Answer one decision.

    Raises:
        StructuredServerError: each has a status in `api.errors`.
    """
    try:
        body = await read_body(request, service.settings.max_body_bytes)
        asked = _parse(body)
        request.state.log_fields = {"metadata": asked.metadata} if asked.metadata else {}
        query = _query(asked, service)
        service.readiness.require()
        outcome = await unless_gone(request, service.driver.decide(query))
    except ClientDisconnect:
        return Response(status_code=GONE)
    except Unavailable as error:
        service.metrics.refused.labels(error.code).inc()
        raise
    return json_response(
        render(
            outcome,
            identifier=f"dec_{secrets.token_hex(8)}",
            model=service.model,
            backend=service.backend.name,
            model_revision=service.model_revision,
            metadata=asked.metadata,
        )
    )


def _parse(body: bytes) -> DecideRequest:
    try:
        return DecideRequest.model_validate_json(body)
    except ValidationError as error:
        raise caller_error(error, DecideRequest) from None


def _query(asked: DecideRequest, service: Service) -> Query:
    if asked.model is not None and asked.model != service.model:
        raise UnknownModel(
            "names a model that is not served here.",
            path=("model",),
            hint=f"This server has {service.model}.",
        )
    deadline_ms = service.settings.deadline_ms if asked.deadline_ms is None else asked.deadline_ms
    return Query(
        schema=asked.schema_of_questions(),
        state=asked.state_text(),
        options=asked.read_options(service.read_options),
        policy=asked.read_policy(service.read_policy),
        seed=asked.read.seed,
        deadline_s=deadline_ms / 1000,
    )
