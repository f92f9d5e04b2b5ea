"""`structured-server serve` as a process of our own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.server import free_port

PROXY_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx.Response:
        """Send a GET."""
        return httpx.get(self.url + path, timeout=10)

    def decide(self, body: dict[str, Any], **settings: Any) -> httpx.Response:
        """Send a decision."""
        return httpx.post(f"{self.url}/decide", json=body, timeout=60, **settings)

    def readiness(self) -> dict[str, Any]:
        """Return what /ready says."""
        said: dict[str, Any] = self.get("/ready").json()
        return said

    def wait_until(
        self, condition: Callable[[dict[str, Any]], bool], limit: float = PROXY_LIMIT
    ) -> dict[str, Any]:
        """Wait until /ready says what is wanted, and return it; fail with what it said last."""
        end = time.monotonic() + limit
        said: dict[str, Any] = {}
        while time.monotonic() < end:
            said = self.readiness()
            if condition(said):
                return said
            time.sleep(0.05)
        pytest.fail(f"/ready still says {said} after {limit:g} s; log:\n{self.log.read_text()[-2000:]}")

    def wait_until_ready(self) -> None:
        """Wait until decisions can be made at every width."""
        self.wait_until(lambda said: said["ready"])
        time.sleep(1.0)  # the narrower widths warm up behind readiness

    def stop(self) -> int:
        """End it as a platform would, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def launch_proxy(
    log: Path,
    arguments: Sequence[str],
    environ: dict[str, str] | None = None,
    *,
    launcher: Sequence[str] = ("-m", "structured_server"),
) -> Proxy:
    """Start a server on a free port and return once the port is open, long before it has loaded."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *launcher, "serve", "--port", str(port), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environ or {})},
        )
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            return Proxy(port, process, log)
    pytest.fail(f"the server ended with {process.returncode}: {log.read_text()}")


@contextmanager
def embedded_server(log: Path, *arguments: str) -> Iterator[Proxy]:
    """Run a server with the embedded model, ready at every width, and end it afterwards."""
    proxy = launch_proxy(log, ("--backend", "embedded", "--log-level", "warning", *arguments))
    try:
        proxy.wait_until_ready()
        yield proxy
    finally:
        proxy.stop()
