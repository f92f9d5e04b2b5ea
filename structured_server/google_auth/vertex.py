"""Addresses of Vertex AI's endpoints."""

from __future__ import annotations

import re

from structured_server.google_auth.errors import AuthError

_PATH = r"/v1(?:beta1)?/projects/[\w-]+/locations/(?P<location>[\w-]+)/endpoints/[\w-]+(?::rawPredict)?"
_SHARED = re.compile(rf"https://(?P<host>[\w-]+)-aiplatform\.googleapis\.com{_PATH}")
_DEDICATED = re.compile(rf"https://[\w-]+\.[\w-]+\.prediction\.vertexai\.goog{_PATH}")
EXAMPLE = "https://us-central1-aiplatform.googleapis.com/v1/projects/PROJECT/locations/us-central1/endpoints/ENDPOINT"


def vertex_route(url: str) -> str:
    """Return the address that an endpoint is asked at.

    Raises:
        AuthError: it is none; the message shows one.
    """
    address = url.strip().rstrip("/")
    shared = _SHARED.fullmatch(address)
    if shared is None and _DEDICATED.fullmatch(address) is None:
        raise AuthError(f"{url} is no endpoint of Vertex AI, such as {EXAMPLE}:rawPredict.")
    if shared and shared["host"] != shared["location"]:
        raise AuthError(f"{url} names two regions: {shared['host']} and {shared['location']}.")
    return address if address.endswith(":rawPredict") else f"{address}:rawPredict"
