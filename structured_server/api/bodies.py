"""Reading a request's body within limits, and noticing that its sender has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from structured_server.api.encodings import decoder, too_large
from structured_server.core.reads import Image
from structured_server.errors import MalformedBody
from structured_server.wire.images import checked_image

JSON_PART = "request"
MOST_PARTS = 32
LENGTH_DIGITS = 19  # of what a server of HTTP lets through

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received:
    """The JSON of a request, and the images that came beside it, by the name of their part."""

    json: bytes
    parts: tuple[tuple[str, Image], ...] = ()

    @property
    def images(self) -> tuple[Image, ...]:
        """The images in order."""
        return tuple(image for _, image in self.parts)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body, decompressed.

    Raises:
        UnsupportedEncoding: it is compressed in a way that is not read here.
        MalformedBody: it is not compressed as it says.
        BodyTooLarge: it has more than `limit` bytes, as it comes or decompressed.
        ClientDisconnect: its sender left.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and len(announced) <= LENGTH_DIGITS and int(announced) > limit:
        raise too_large(limit)  # without having it sent
    decoding = decoder(request.headers.get("content-encoding", ""), limit)
    body, came = bytearray(), 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        came += len(chunk)
        if came > limit:  # compressed, it could go on without end and without becoming anything
            raise too_large(limit)
        body += decoding.feed(chunk)
    decoding.end()
    return bytes(body)


async def read_parts(request: Request, limit: int) -> Received:
    """Return the JSON of a request and its images: all of the body, or the parts of a multipart one.

    There the part `request` holds the JSON, and every other part is an image, in order.

    Raises:
        UnsupportedEncoding: it is compressed in a way that is not read here.
        BodyTooLarge: it has more than `limit` bytes.
        MalformedBody: it is no multipart body, although it says so, or has no part `request`.
        InvalidRequest: a part is no image.
        ClientDisconnect: its sender left.
    """
    body = await read_body(request, limit)
    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith("multipart/form-data"):
        return Received(body)
    # A part without a file name is decoded as text. As Latin-1 it gives its bytes back as they came.
    headers = Headers({"content-type": f"{content_type}; charset=latin-1"})

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body
        if not parser.whole:  # raised in here, where the parser closes the files that it has begun
            raise MultiPartException("it breaks off")

    try:
        parser = _Parts(headers, stream(), max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=limit)
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        reason = getattr(error, "message", "it has no boundary")
        raise MalformedBody(f"the body is no multipart form: {reason.rstrip('.')}.") from None
    found: bytes | None = None
    parts: list[tuple[str, Image]] = []
    try:
        for name, value in form.multi_items():
            data = value.encode("latin-1", "replace") if isinstance(value, str) else await value.read()
            if name == JSON_PART:
                found = data
            else:
                name = name.encode("latin-1", "replace").decode(errors="replace")
                parts.append((name, checked_image(data, (name,))))
    finally:
        await form.close()  # large parts are files until then
    if found is None:
        raise MalformedBody(f"the multipart body has no part named {JSON_PART}, which must hold the JSON.")
    return Received(found, tuple(parts))


class _Parts(MultiPartParser):
    """Knows whether the end came. Without it, the part that was cut would be left out without a word."""

    whole = False

    def on_end(self) -> None:
        self.whole = True


async def unless_gone(request: Request, work: Coroutine[None, None, T]) -> T:
    """Return what the work returns; cancel it when the request's sender leaves. The body must have been read.

    Raises:
        ClientDisconnect: the sender left first.
    """
    working = asyncio.current_task()
    assert working is not None, "requests are served in tasks"
    gone = False

    def leave(leaving: asyncio.Task[None]) -> None:
        nonlocal gone
        if not leaving.cancelled() and not done:
            gone = True
            working.cancel()

    done = False
    leaving = asyncio.ensure_future(_gone(request))
    leaving.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if gone and not working.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        done = True
        leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
