"""The operations that clients wait for, answered ahead of the router, whose way is as long as the work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from structured_server.errors import StructuredServerError, let_go

Answer = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Served:
    """One path of an operation. It stands in the scope as the request's route."""

    path: str
    answer: Answer


class Operations:
    """Answers a POST to one of the paths; all else is the router's."""

    def __init__(
        self, app: ASGIApp, *, served: Mapping[str, Served], on_error: OnError, on_gone: OnError
    ) -> None:
        self._app = app
        self._served = served
        self._on_error = on_error
        self._on_gone = on_gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        served = self._served.get(scope["path"]) if scope["type"] == "http" else None
        if served is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = served
        request = Request(scope, receive)
        try:
            response = await served.answer(request)
        except StructuredServerError as error:
            response = await self._on_error(request, error)
            let_go(error)
        except ClientDisconnect as gone:
            response = await self._on_gone(request, gone)
        await response(scope, receive, send)
