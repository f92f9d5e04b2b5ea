"""A server that answers over real HTTP as it is told to: refusals, broken connections, other fingerprints."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, Any], dict[str, str]]  # status, body, headers
Script = Callable[[int, dict[str, Any]], Reply | None]
"""From the request's number and body to a reply; None breaks the connection."""


@dataclass(slots=True)
class FakeServer:
    """What it was asked, and how many requests were under way at once."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)  # names in lower case
    at: list[float] = field(default_factory=list)  # when, on the monotonic clock
    most: int = 0
    _inside: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, body: dict[str, Any]) -> int:
        """Take note of a request; return its number, from 0."""
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self.asked.append(body)
            self.at.append(time.monotonic())
            return len(self.asked) - 1

    def leave(self) -> None:
        """Take note of its end."""
        with self._lock:
            self._inside -= 1


def answer(body: dict[str, Any], *, fingerprint: str = "fp_1", warnings: tuple[str, ...] = ()) -> Reply:
    """Return a decision: the first option of each question, more probable the longer the state's text is."""
    length = len(json.dumps(body["state"]))
    p = 0.5 + 0.5 * (length % 100) / 100
    answers: dict[str, Any] = {}
    for name, question in body["questions"].items():
        each: dict[str, Any] = {"type": question["type"], "status": "decided"}
        if question["type"] == "noul":
            each |= {"answer": True, "noul": p}
        elif question["type"] == "choice":
            first = next(iter(question["criteria"]))
            each |= {"answer": first, "choice": first}
        else:
            legend = {str(index): level for index, level in enumerate(question["criteria"])}
            each |= {"answer": 0, "score": 1 - p, "level": 0, "legend": legend}
        each |= {
            "top_probability": p,
            "entropy": 1 - p,
            "noise": {"draws": 1, "agreement": 1.0, "standard_error": None},
        }
        answers[name] = each
    return (
        200,
        {
            "id": "dec_0",
            "model": "fake",
            "answers": answers,
            "undecided": [],
            "usage": {"input_tokens": 9, "engine_input_tokens": 9, "cached_input_tokens": None},
            "timings_ms": {"queue": 0.0, "engine": 1.0, "total": 1.0},
            "reading": {"reads": 1, "extended": False},
            "provenance": {"server": "0", "question_set": "qs_0", "fingerprint": fingerprint},
            "warnings": [
                {"code": code, "message": code, "question": name} for name in answers for code in warnings
            ],
        },
        {},
    )


def error(status: int, code: str, message: str, *, path: tuple[str, ...] = (), **headers: str) -> Reply:
    """Return an error as a server writes it; `retry_after` becomes that header."""
    said = {"code": code, "message": message, "path": list(path), "hint": None}
    return status, {"error": said}, {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def serving(script: Script, *, delay: float = 0.0) -> Iterator[FakeServer]:
    """Answer as the script says, each request after `delay` seconds."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            number = fake.enter(body)
            time.sleep(delay)
            reply = script(number, body)
            fake.leave()
            if reply is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, said, headers = reply
            data = json.dumps(said).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that left is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    fake = FakeServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
