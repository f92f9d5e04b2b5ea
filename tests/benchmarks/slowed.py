"""The server with two milliseconds of work more in each request: what the gate on its cost must notice."""

from __future__ import annotations

import time

from starlette.types import Receive, Scope, Send

from structured_server.api import app
from structured_server.cli.main import main

SPENT_S = 0.002


class Slowed(app.Application):
    """Spends time before each request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        end = time.process_time() + SPENT_S
        while time.process_time() < end:
            pass
        await super().__call__(scope, receive, send)


if __name__ == "__main__":
    app.Application = Slowed  # type: ignore[misc]
    main()
