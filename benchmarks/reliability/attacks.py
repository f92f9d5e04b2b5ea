"""What a server must refuse: bytes that come slowly, without end, or become more than they are."""

from __future__ import annotations

import asyncio
import gzip
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import orjson

from benchmarks.reliability.asked import NOUL

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 2**20
PIECE = bytes(MIB // 4)
DEPTH = 10_000
TOKENS = 1_000_000
REPLY_S = 120.0
PATHS = ("/decide", "/decide/lint", "/v1/systemone", "/v1/decisions", "/v1/chat/completions", "/decide/batch")

CLOSED = "closed"
"""In place of a status: the server ended the connection without a word."""

STAYED = "open"
"""Likewise: it is open still."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one attempt: a status, or what became of the connection, and after how long."""

    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack, and what may become of it."""

    name: str
    attempt: Callable[[int], Awaitable[Tried]]  # on a port
    wanted: tuple[str, ...]
    slow: bool = False


def attacks(large_mib: int, slow_s: float) -> Iterator[Attack]:
    """Yield every kind; large bodies have so many MiB, slow ones are tried for so long."""
    head = b"POST /decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    cut_off = (CLOSED, "408")
    yield Attack("slow heads", partial(_slowly, head + b"X: ", slow_s), cut_off, slow=True)
    yield Attack("silent connections", partial(_slowly, b"", slow_s), cut_off, slow=True)
    announced = head + b"Content-Length: 4000000\r\n\r\n{"
    yield Attack("slow bodies", partial(_slowly, announced, slow_s), cut_off, slow=True)
    yield Attack(f"{large_mib} MiB, announced", partial(_large, head, large_mib, False), ("413",))
    yield Attack(f"{large_mib} MiB, in chunks", partial(_large, head, large_mib, True), ("413",))
    zstd_head = head + b"Content-Encoding: zstd\r\n"
    gzip_head = head + b"Content-Encoding: gzip\r\n"
    yield Attack("zstd bomb of 1 GiB", partial(_whole, zstd_head, _zstd_bomb(1024)), ("413",))
    yield Attack(
        "gzip bomb of 256 MiB", partial(_whole, gzip_head, gzip.compress(bytes(256 * MIB), 1)), ("413",)
    )
    window = _zstd_bomb(160, window_log=27)
    yield Attack("zstd window of 128 MiB", partial(_whole, zstd_head, window), ("400", "413"))
    for path in PATHS:
        deep = b'{"state": ' + b"[" * DEPTH + b"]" * DEPTH + b"}"
        at = head.replace(b"/decide", path.encode(), 1)
        yield Attack(f"{DEPTH} deep at {path}", partial(_whole, at, deep), ("400", "422"))
    for cut in ("reject", "middle"):
        asked = {
            "state": "a " * TOKENS,
            "questions": {"urgent": NOUL},
            "read": {"samples": 1, "long_state": cut},
        }
        wanted = "413" if cut == "reject" else "200"
        yield Attack(f"{TOKENS} tokens, {cut}", partial(_whole, head, orjson.dumps(asked)), (wanted,))


def _zstd_bomb(mib: int, *, window_log: int = 20) -> bytes:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    return b"".join([*(compressor.compress(bytes(MIB)) for _ in range(mib)), compressor.flush()])


async def _slowly(begin: bytes, seconds: float, port: int) -> Tried:
    """Send a byte a second, and see when the server has had enough."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(begin)
        reading = asyncio.create_task(reader.read(64))
        while not reading.done() and time.monotonic() - begun < seconds:
            await asyncio.wait((reading,), timeout=1.0)
            if begin and not reading.done():
                writer.write(b"a")
        if not reading.done():
            reading.cancel()
            return Tried(STAYED, time.monotonic() - begun)
        return Tried(_status(await _or_nothing(reading)), time.monotonic() - begun)
    finally:
        writer.transport.abort()


async def _large(head: bytes, mib: int, chunked: bool, port: int) -> Tried:
    """Send a large body, all of it if it is let, whatever comes back meanwhile."""
    size = mib * MIB
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
    piece = b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(head + length + b"\r\n\r\n")
        for _ in range(size // len(PIECE)):
            writer.write(piece)
            await writer.drain()

    return await _asked(send, port)


async def _whole(head: bytes, body: bytes, port: int) -> Tried:
    """Send a body that is announced as long as it is."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    return await _asked(send, port)


async def _asked(send: Callable[[asyncio.StreamWriter], Awaitable[None]], port: int) -> Tried:
    """Send a request, and say what came back, after how long."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(reader.read(64))
    try:
        with suppress(OSError):
            await send(writer)
        async with asyncio.timeout(REPLY_S):
            return Tried(_status(await _or_nothing(reading)), time.monotonic() - begun)
    except TimeoutError:
        return Tried(STAYED, time.monotonic() - begun)
    finally:
        reading.cancel()
        writer.transport.abort()


async def _or_nothing(reading: asyncio.Task[bytes]) -> bytes:
    try:
        return await reading
    except OSError:
        return b""


def _status(reply: bytes) -> str:
    return reply.split(b" ", 2)[1].decode() if reply.startswith(b"HTTP/") else CLOSED
