"""`GET /v1/models`: the served model, in a shape that the clients of both kinds parse."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from structured_server.api.errors import json_response
from structured_server.api.service import Service


def models(service: Service, serving_since: float) -> Response:
    """List the served model under each of its names. Its dates are since when it is served here."""
    since = datetime.fromtimestamp(serving_since, UTC)
    names = service.model_names
    return json_response(
        {
            "object": "list",
            "data": [
                {
                    "id": name,
                    "object": "model",
                    "created": int(serving_since),
                    "owned_by": "structured-server",
                }
                for name in names
            ],
            "models": [
                {
                    "name": name,
                    "description": f"Read by the {service.backend.name} backend.",
                    "release_date": since.strftime("%Y-%m-%d"),
                }
                for name in names
            ],
        }
    )
