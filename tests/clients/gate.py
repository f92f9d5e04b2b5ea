"""A gate that says for the server, in its own words, that it cannot answer now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from structured_server.api.errors import dialect_of, error_response
from structured_server.errors import Unavailable
from tests.clients.relay import application, relayed, running


@dataclass
class Gate:
    """A gate that runs: where, and when requests came."""

    url: str = ""
    arrivals: list[float] = field(default_factory=list)

    @property
    def waits(self) -> list[float]:
        """Seconds between one request and the next."""
        return [b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]


@contextmanager
def refusing(error: Unavailable, behind: str, times: int = 1) -> Iterator[Gate]:
    """Refuse so many requests as the server itself would, then let them through."""
    gate = Gate()

    async def handle(request: web.Request) -> web.Response:
        gate.arrivals.append(time.monotonic())
        if len(gate.arrivals) > times:
            return await relayed(request, behind, request.headers.copy())
        refusal = error_response(error, "req_refused", dialect_of(request.path))
        return web.Response(
            status=refusal.status_code, headers=dict(refusal.headers), body=bytes(refusal.body)
        )

    with running(application(handle)) as gate.url:
        yield gate
