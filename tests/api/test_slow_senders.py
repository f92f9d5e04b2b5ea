"""Requests that come in too slowly are cut off; slow answers and connections that are kept are not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from structured_server.api.connections import TOO_SLOW, impatient
from tests.engine.server import free_port
from tests.serving import serving_http

LIMIT_S = 0.5
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
ANNOUNCED = b"POST /%b HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, unless told to be early; answer after as long as the path says."""
    assert "http" == scope["type"]
    path = scope["path"].strip("/")
    if path == "early":
        path = ""
    else:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            if not message["more_body"]:
                break
    await asyncio.sleep(float(path or 0))
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Serve with the limit."""
    port = free_port()
    config = uvicorn.Config(app, port=port, http=impatient(LIMIT_S), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with server.capture_signals():
        serving = asyncio.create_task(server._serve())
        while not server.started:
            await asyncio.sleep(0.01)
        yield port
        server.should_exit = True
        await serving


class Caller:
    """A connection whose bytes are under the test's control."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def status(self) -> bytes:
        async with asyncio.timeout(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
        return head.split(b" ")[1]

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        async with asyncio.timeout(10):
            return await self._reader.read()

    def close(self) -> None:
        self._writer.transport.abort()


@pytest.fixture
async def caller(port: int) -> AsyncIterator[Caller]:
    """Connect."""
    caller = Caller(*await asyncio.open_connection("127.0.0.1", port))
    yield caller
    caller.close()


async def test_who_says_nothing_is_cut_off(caller: Caller) -> None:
    assert TOO_SLOW == await caller.rest()


async def test_a_head_that_comes_byte_by_byte_is_cut_off(caller: Caller) -> None:
    async def drip() -> None:
        while True:
            caller.send(b"a")
            await asyncio.sleep(0.1)

    caller.send(b"GET / HTTP/1.1\r\nX: ")
    dripping = asyncio.create_task(drip())
    assert TOO_SLOW == await caller.rest()
    dripping.cancel()
    with suppress(asyncio.CancelledError):
        await dripping


async def test_a_body_that_does_not_come_is_cut_off(caller: Caller) -> None:
    caller.send(ANNOUNCED % b"0" + b"12345")
    assert TOO_SLOW == await caller.rest()


async def test_a_body_that_goes_on_after_its_answer_is_cut_off_without_another_one(caller: Caller) -> None:
    caller.send(ANNOUNCED % b"early" + b"12345")
    assert b"204" == await caller.status()
    assert b"" == await caller.rest()


async def test_an_answer_may_take_longer_than_its_request(caller: Caller) -> None:
    caller.send(ANNOUNCED % str(2 * LIMIT_S).encode() + b"1234567890")
    assert b"204" == await caller.status()


async def test_a_connection_may_be_kept_for_longer(caller: Caller) -> None:
    for _ in range(2):
        caller.send(GET)
        assert b"204" == await caller.status()
        await asyncio.sleep(1.5 * LIMIT_S)


@pytest.mark.parametrize("begun", [b"GET / HT", b"\r\n"])
async def test_what_begins_on_a_kept_connection_must_end_too(caller: Caller, begun: bytes) -> None:
    caller.send(GET)
    assert b"204" == await caller.status()
    caller.send(begun)
    assert TOO_SLOW == await caller.rest()


async def test_what_begins_behind_a_request_that_is_being_answered_is_cut_off_in_silence(
    caller: Caller,
) -> None:
    caller.send(ANNOUNCED % str(10 * LIMIT_S).encode() + b"1234567890" + GET[:8])
    assert b"" == await caller.rest()


def test_a_body_that_is_announced_as_too_large_is_refused_before_any_of_it_comes() -> None:
    with (
        serving_http(max_body_bytes=1000) as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10) as connection,
    ):
        connection.sendall(b"POST /decide HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 413 ")
