"""HTTP/1.1 to one server over connections that are kept: one request at a time on each, replies read whole.

A general client costs six times as much for each read: docs/performance.md.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote, urlsplit

import httptools

KEPT_S = 30.0  # how long an idle connection is kept
LONGEST_HEAD = 65_536


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply, read whole."""

    status: int
    body: bytes


class Closed(ConnectionError):
    """The server closed the connection before a byte of the reply came."""


class Broken(ConnectionError):
    """The connection broke within a reply, or what came is none that is understood here."""


class Connections:
    """Connections to the server of a base URL, opened when none is idle."""

    def __init__(self, base: str) -> None:
        """Take a URL, or raise ValueError; a name and a password in it are sent as basic authentication."""
        url = urlsplit(base)
        self._host = url.hostname or ""
        self._ssl = ssl.create_default_context() if url.scheme == "https" else None
        self._port = url.port or (443 if self._ssl else 80)
        self._path = url.path.rstrip("/")
        self._headers = f"Host: {url.netloc.rpartition('@')[2]}\r\nContent-Type: application/json\r\n"
        if url.username is not None:
            secret = f"{unquote(url.username)}:{unquote(url.password or '')}"
            self._headers += f"Authorization: Basic {b64encode(secret.encode()).decode()}\r\n"
        self.idle: list[_Connection] = []
        self._closed = False

    async def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> Reply:
        """Send a request and return the reply to it. Cancelling closes the connection.

        Raises:
            Closed: the connection ended before a byte came.
            Broken: it ended within the reply, or the reply is not understood.
            OSError: there is no connection.
        """
        if self._closed:
            raise Broken("closed")
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        length = f"Content-Length: {len(body or b'')}\r\n"
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._headers}{lines}{length}\r\n".encode()
        connection = self.idle.pop() if self.idle else await self._open()
        try:
            reply = await connection.send(head + (body or b""))
        except BaseException:
            connection.end()
            raise
        if connection.reusable and not self._closed:
            connection.rest()
        else:
            connection.end()
        return reply

    def close(self) -> None:
        """Close all connections: those that are idle now, the others when they come to be."""
        self._closed = True
        for connection in tuple(self.idle):
            connection.end()

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(
            lambda: _Connection(self.idle), self._host, self._port, ssl=self._ssl
        )
        return made[1]


class _Connection(asyncio.Protocol):
    """One connection, and the reply that is coming on it. `reusable` is whether another may follow."""

    _transport: asyncio.Transport
    _parser: httptools.HttpResponseParser
    _reply: asyncio.Future[Reply] | None = None
    _timer: asyncio.TimerHandle | None = None
    _come = 0
    _until_closed = _whole_head = reusable = False

    def __init__(self, idle: list[_Connection]) -> None:
        self._idle = idle

    def send(self, data: bytes) -> asyncio.Future[Reply]:
        if self._timer is not None:
            self._timer.cancel()
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._come, self._head, self._whole_head = 0, 0, False  # bytes so far; those of the head
        self._until_closed = True  # unless a header says how long the body is
        self._reply = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            self._fail(Closed())
        self._transport.write(data)
        return self._reply

    def rest(self) -> None:
        self._idle.append(self)
        self._timer = asyncio.get_running_loop().call_later(KEPT_S, self.end)

    def end(self) -> None:
        if self in self._idle:
            self._idle.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._come and self._until_closed and self._whole_head and error is None:
            self.on_message_complete()
        self._fail(Broken(type(error or EOFError()).__name__) if self._come else Closed())
        self.end()

    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():  # nobody has asked
            self.end()
            return
        self._come += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Broken(type(error).__name__))
            self.reusable = False
        if not self._whole_head and self._come > LONGEST_HEAD:
            self._fail(Broken("its head does not end"))

    def on_message_begin(self) -> None:
        self.reusable = False  # also where one follows that nobody has asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._head += len(name) + len(value)
        if name in (b"content-length", b"transfer-encoding"):
            self._until_closed = False
        elif name == b"content-encoding" and value.lower() != b"identity":  # which nobody asked for
            self._fail(Broken("its encoding is unknown"))
        if self._head > LONGEST_HEAD:
            self._fail(Broken("its head is too long"))

    def on_headers_complete(self) -> None:
        self._whole_head = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._reply is not None and not self._reply.done():  # 1xx: more is to come
            self.reusable = self._parser.should_keep_alive() and not self._until_closed
            self._reply.set_result(Reply(status, b"".join(self._body)))

    def _fail(self, error: ConnectionError) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
