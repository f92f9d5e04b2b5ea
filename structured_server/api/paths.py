"""The paths of the decision routes, with the spellings that clients of other servers use."""

from __future__ import annotations

import random

from starlette.types import Scope

DECIDE = ("/decide", "/v1/decide")
BATCH = ("/decide/batch", "/v1/decide/batch")
LINT = ("/decide/lint", "/v1/decide/lint")

# Some put /v1 into the base URL as well; some call the path that a gateway has.
SYSTEMONE = ("/v1/systemone", "/systemone", "/v1/v1/systemone", "/api/v1/systemone")
MODELS = ("/v1/models", "/v1/v1/models")
DECISIONS = ("/v1/decisions", "/decisions", "/api/alpha/decisions")

CHAT = ("/v1/chat/completions", "/v1/raw/chat/completions")


def new_id(kind: str) -> str:
    """Return a name for a request or a decision that no other has. It is no secret, and so it is quick."""
    return f"{kind}_{random.getrandbits(64):016x}"


def route_of(scope: Scope) -> str:
    """Return the path of the route that a request met, never the path that was asked for."""
    return getattr(scope.get("route"), "path", "unmatched")
