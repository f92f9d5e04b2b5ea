"""Reading a request's body within limits, and noticing that its sender has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from structured_server.errors import BodyTooLarge, UnsupportedEncoding

T = TypeVar("T")


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body.

    Raises:
        UnsupportedEncoding: it is compressed.
        BodyTooLarge: it has more than `limit` bytes.
        ClientDisconnect: its sender left.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding("the body is compressed; send it as plain JSON, without Content-Encoding.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge(
                f"the body has more than {limit} bytes.",
                hint="Shorten it, or raise the server's --max-body-bytes.",
            )
    return bytes(body)


async def unless_gone(request: Request, work: Coroutine[None, None, T]) -> T:
    """Return what the work returns; cancel it when the request's sender leaves. The body must have been read.

    Raises:
        ClientDisconnect: the sender left first.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
