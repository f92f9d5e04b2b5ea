"""A stand-in that answers on the server's socket while the server itself still loads.

Importing the server and loading a tokenizer hold the interpreter for seconds. So the socket is opened first,
and a forked child with nothing but the standard library answers probes on it: alive, not ready yet.
It leaves when the server takes over, or when the server dies. Connections are never lost: both accept from
the same queue, and the child finishes what it has accepted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from contextlib import suppress

LARGEST_BODY = 4 * 1024 * 1024
PATIENCE_S = 5.0
RETRY_AFTER_S = 5


class Placeholder:
    """The parent's handle on the child."""

    def __init__(self, listening: socket.socket) -> None:
        """Fork the child. Must be called before any thread or event loop exists."""
        reading, self._pipe = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._pipe)
            _become(listening, reading)
        os.close(reading)

    def enter(self, step: str) -> None:
        """Tell the child which step the server has come to."""
        with suppress(BrokenPipeError):
            os.write(self._pipe, f"{step}\n".encode())

    def leave(self) -> None:
        """Let the child finish its connections and go. Returns at once."""
        with suppress(OSError):
            os.close(self._pipe)
        threading.Thread(target=os.waitpid, args=(self._child, 0), daemon=True).start()


def _become(listening: socket.socket, pipe: int) -> None:
    """Be the child, to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both; the pipe tells when to go
    try:
        asyncio.run(_answer_until_told(listening, pipe))
    finally:
        os._exit(0)


async def _answer_until_told(listening: socket.socket, pipe: int) -> None:
    """Accept and answer until the pipe closes, then finish what was accepted."""
    state = _State()
    told = asyncio.Event()
    accepted: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        heard = os.read(pipe, 4096)
        if heard:
            state.enter(heard.decode().split()[-1])
        else:
            loop.remove_reader(pipe)
            told.set()

    def accept() -> None:
        # Not asyncio's own server: closing one can drop connections that it has just accepted.
        with suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = listening.accept()
            connection.setblocking(False)
            task = loop.create_task(_serve(connection, state))
            accepted.add(task)
            task.add_done_callback(accepted.discard)

    os.set_blocking(pipe, False)
    listening.setblocking(False)
    loop.add_reader(pipe, hear)
    loop.add_reader(listening, accept)
    await told.wait()
    loop.remove_reader(listening)
    if accepted:
        await asyncio.wait(accepted, timeout=PATIENCE_S)


async def _serve(connection: socket.socket, state: _State) -> None:
    """Answer one request, unless its sender takes too long or makes no sense."""
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        with suppress(
            TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError
        ):
            async with asyncio.timeout(PATIENCE_S):
                await _answer(reader, writer, state)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class _State:
    """The step that the server is at, and since when."""

    def __init__(self) -> None:
        self.enter("starting")

    def enter(self, step: str) -> None:
        self.step, self.since = step, time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: _State) -> None:
    """Read one request whole, so that its sender is never cut off, and answer it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, path = head.split(" ", 2)[:2]
    if "\r\nexpect: 100-continue" in head.lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    lengths = [
        line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length:")
    ]
    if lengths:
        left = min(int(lengths[0]), LARGEST_BODY)
        while left > 0 and (chunk := await reader.read(min(left, 65536))):
            left -= len(chunk)
    status, body = _reply(path.partition("?")[0], state)
    content = b"" if method == "HEAD" else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status}",
        "content-type: application/json",
        f"content-length: {len(content)}",
        "connection: close",
    ]
    if not status.startswith("200"):
        lines.append(f"retry-after: {RETRY_AFTER_S}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    await writer.drain()


def _reply(path: str, state: _State) -> tuple[str, dict[str, object]]:
    if path in ("/live", "/health"):
        return "200 OK", {"live": True}
    if path == "/ready":
        return "503 Service Unavailable", {
            "ready": False,
            "step": state.step,
            "waits_for": "the server to start",
            "seconds": state.seconds,
            "problem": None,
        }
    return "503 Service Unavailable", {
        "error": {
            "code": "loading",
            "message": f"the server is not ready: {state.step}, {state.seconds:.0f} s.",
            "path": [],
            "hint": "GET /ready tells when it is.",
            "retryable": True,
            "request_id": f"req_{os.urandom(8).hex()}",
        }
    }
