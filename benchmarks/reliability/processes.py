"""The server and its engines as processes of our own, on loopback, each ended by its own id."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.engine.server import free_port
from tests.proxy import Proxy, launch_proxy

ROOT = Path(__file__).parents[2]
TOKENIZER = ROOT / "structured_server" / "data" / "triage"
WARM_READS = 4
"""What a server reads of an engine before it uses all of its widths: each of them once."""

START_S = 60.0


class NotStarted(Exception):
    """A process did not come up; the message says which."""


@dataclass(slots=True)
class EngineProcess:
    """A fake engine in a process, on a port that it keeps when it dies and returns."""

    arguments: Sequence[str] = ()
    tokenizer: Path = TOKENIZER
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return once it listens.

        Raises:
            NotStarted: it ended instead.
        """
        command = [sys.executable, "-m", "tests.fake_engine", "--tokenizer", str(self.tokenizer)]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port), *self.arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise NotStarted(f"the fake engine ended with {self._process.wait()}")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def set_faults(self, **faults: Any) -> None:
        """Switch faults: the fields of `tests.fake_faults.Faults`, all others at their default."""
        httpx.put(f"{self.url}/faults", json=faults, timeout=10).raise_for_status()

    def tally(self) -> dict[str, Any]:
        """Return how many reads came, and which faults of its mix met them."""
        told: dict[str, Any] = httpx.get(f"{self.url}/tally", timeout=10).json()
        return told


@dataclass(frozen=True, slots=True)
class Stage:
    """A server before its engines."""

    server: Proxy
    engines: tuple[EngineProcess, ...]

    def wait_until_warm(self) -> None:
        """Wait until every engine is used at every width.

        Raises:
            NotStarted: it took too long.
        """
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if all(engine.tally()["reads"] >= WARM_READS for engine in self.engines) and self._reads_narrow():
                return
            time.sleep(0.1)
        raise NotStarted(f"not every engine was ready after {START_S:g} s: {self.server.readiness()}")

    def _reads_narrow(self) -> bool:
        body = {"state": "warm", "questions": {"q": {"type": "noul", "instructions": "Warm?"}}}
        reply = self.server.decide(body | {"read": {"samples": 1}})
        return reply.status_code == 200 and reply.json()["reading"]["canvas_width"] == 16


@contextmanager
def staged(
    engines: int, arguments: Sequence[str] = (), engine_arguments: Sequence[str] = ()
) -> Iterator[Stage]:
    """Start engines and a server before them, wait until all is warm, and end them all afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = tuple(EngineProcess(engine_arguments) for _ in range(engines))
        for engine in started:
            stack.callback(engine.kill)
            engine.start()
        upstreams = [part for engine in started for part in ("--upstream", engine.url)]
        server = launch(
            folder / "log", [*upstreams, "--model", "fake", "--tokenizer", str(TOKENIZER), *arguments]
        )
        stack.callback(server.stop)
        stage = Stage(server, started)
        server.wait_until(lambda said: said["ready"])
        stage.wait_until_warm()
        yield stage


def launch(log: Path, arguments: Sequence[str]) -> Proxy:
    """Start a server; its log says no more than warnings, so that a request costs what it costs."""
    return launch_proxy(log, ["--log-level", "warning", *arguments], {"PYTHONPATH": str(ROOT)})
