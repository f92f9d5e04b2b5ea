"""`POST /decide`: from bytes to bytes, in one straight line."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from structured_server.api.bodies import read_parts, unless_gone
from structured_server.api.errors import json_response
from structured_server.api.service import Service
from structured_server.core.reads import Image
from structured_server.driver import Outcome, Query
from structured_server.errors import Unavailable, UnknownModel
from structured_server.wire.decide_request import Asking, DecideRequest
from structured_server.wire.decide_response import render
from structured_server.wire.validation import caller_error

GONE = 499  # what proxies log for a client that left; nobody receives it


async def decide(request: Request, service: Service) -> Response:
    """Answer one decision.

    Raises:
        StructuredServerError: each has a status in `api.errors`.
    """
    try:
        body, images = await read_parts(request, service.settings.max_body_bytes)
        asked = _parse(body)
        request.state.log_fields = {"metadata": asked.metadata} if asked.metadata else {}
        query = query_of(asked, service, asked.state_text(), asked.pictures(images))
        service.readiness.require()
        outcome = await unless_gone(request, service.driver.decide(query))
    except ClientDisconnect:
        return Response(status_code=GONE)
    except Unavailable as error:
        service.metrics.refused.labels(error.code).inc()
        raise
    return json_response(body_of(outcome, service, asked.metadata))


def body_of(outcome: Outcome, service: Service, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the body that answers one decision."""
    return render(
        outcome,
        identifier=f"dec_{secrets.token_hex(8)}",
        model=service.model,
        backend=service.backend.name,
        model_revision=service.model_revision,
        metadata=metadata,
    )


def _parse(body: bytes) -> DecideRequest:
    try:
        return DecideRequest.model_validate_json(body)
    except ValidationError as error:
        raise caller_error(error, DecideRequest) from None


def query_of(asked: Asking, service: Service, state: str, images: tuple[Image, ...] = ()) -> Query:
    """Return what is to be decided about a state.

    Raises:
        UnknownModel: another model is asked for.
        InvalidRequest: a question or a read option is wrong.
    """
    if asked.model is not None and asked.model != service.model:
        raise UnknownModel(
            "names a model that is not served here.",
            path=("model",),
            hint=f"This server has {service.model}.",
        )
    deadline_ms = service.settings.deadline_ms if asked.deadline_ms is None else asked.deadline_ms
    return Query(
        schema=asked.schema_of_questions(),
        state=state,
        options=asked.read_options(service.read_options),
        policy=asked.read_policy(service.read_policy),
        seed=asked.read.seed,
        deadline_s=deadline_ms / 1000,
        images=images,
        long_state=asked.read.long_state,
    )
