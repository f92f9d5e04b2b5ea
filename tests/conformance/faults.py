"""A front before the server that goes wrong as it is told, and otherwise passes requests on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.conformance.target import TIMEOUT

SILENCE_LIMIT = 5.0  # seconds
HOP_BY_HOP = {"host", "connection", "content-length", "accept-encoding"}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that the front gives itself."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class Trouble(Enum):
    """What the front does instead of answering."""

    DROP = auto()  # ends the connection
    SILENCE = auto()  # says nothing until something else is to go wrong


class Front:
    """What is to go wrong next, and the headers of every request that came."""

    def __init__(self, upstream: str) -> None:
        self.seen: list[dict[str, str]] = []
        self.upstream = httpx.Client(base_url=upstream, timeout=TIMEOUT)
        self._steps: list[Reply | Trouble] = []
        self._let_go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next(self, *steps: Reply | Trouble) -> None:
        """Say what becomes of the next requests; those after them reach the server."""
        self._let_go.set()
        self._steps, self.seen, self._let_go = list(steps), [], threading.Event()

    def take_step(self) -> Reply | Trouble | None:
        """Return what becomes of a request that has come; None is nothing special."""
        return self._steps.pop(0) if self._steps else None

    def keep_silent(self) -> None:
        """Wait until something else is to go wrong."""
        self._let_go.wait(SILENCE_LIMIT)

    def close(self) -> None:
        """Stop listening, and let go of whoever still waits."""
        self._let_go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.upstream.close()


@contextmanager
def front_before(upstream: str) -> Iterator[Front]:
    """Put a front before a server for as long as the block lasts."""
    front = Front(upstream)
    try:
        yield front
    finally:
        front.close()


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            front.seen.append(headers)
            step = front.take_step()
            if isinstance(step, Trouble):
                if step is Trouble.SILENCE:
                    front.keep_silent()
                self.close_connection = True
                return
            reply = self.given(step) if step else self.passed_on(content, headers)
            self.send_response(reply.status_code)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.content)

        def given(self, reply: Reply) -> httpx.Response:
            content = json.dumps(reply.body).encode()
            headers = {"content-type": "application/json", "content-length": str(len(content))}
            return httpx.Response(reply.status, headers={**headers, **reply.headers}, content=content)

        def passed_on(self, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
            sent = {name: value for name, value in headers.items() if name not in HOP_BY_HOP}
            # Uncompressed, so that the bytes of the answer are what its headers say.
            sent["accept-encoding"] = "identity"
            return front.upstream.request(self.command, self.path, content=content, headers=sent)

        do_GET = do_POST = answer  # noqa: N815 - the names that the standard library looks for

    return Handler
