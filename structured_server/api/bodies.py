"""Reading a request's body within limits, and noticing that its sender has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from structured_server.core.reads import Image
from structured_server.errors import BodyTooLarge, MalformedBody, UnsupportedEncoding
from structured_server.wire.images import checked_image

JSON_PART = "request"
MOST_PARTS = 32

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


async def read_parts(request: Request, limit: int) -> tuple[bytes, tuple[Image, ...]]:
    """Return the JSON of a request and its images: all of the body, or the parts of a multipart one.

    There the part `request` holds the JSON, and every other part is an image, in order.

    Raises:
        UnsupportedEncoding: it is compressed.
        BodyTooLarge: it has more than `limit` bytes.
        MalformedBody: it is no multipart body, although it says so, or has no part `request`.
        InvalidRequest: a part is no image.
        ClientDisconnect: its sender left.
    """
    body = await read_body(request, limit)
    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith("multipart/form-data"):
        return body, ()
    # A part without a file name is decoded as text. As Latin-1 it gives its bytes back as they came.
    headers = Headers({"content-type": f"{content_type}; charset=latin-1"})

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        parser = MultiPartParser(
            headers, stream(), max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=limit
        )
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        reason = getattr(error, "message", "it has no boundary")
        raise MalformedBody(f"the body is no multipart form: {reason.rstrip('.')}.") from None
    found: bytes | None = None
    images: list[Image] = []
    try:
        for name, value in form.multi_items():
            data = value.encode("latin-1", "replace") if isinstance(value, str) else await value.read()
            if name == JSON_PART:
                found = data
            else:
                images.append(
                    checked_image(data, (name.encode("latin-1", "replace").decode(errors="replace"),))
                )
    finally:
        await form.close()  # large parts are files until then
    if found is None:
        raise MalformedBody(f"the multipart body has no part named {JSON_PART}, which must hold the JSON.")
    return found, tuple(images)


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
