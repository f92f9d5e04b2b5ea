"""The two servers as processes: ours as it is deployed, and vLLM's example as its help says."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reliability.processes import ROOT, START_S, EngineProcess, NotStarted
from tests.engine.server import VENV, free_port
from tests.gemma import MADE
from tests.proxy import Proxy, launch_proxy

EXAMPLE = ROOT / ".cache" / "reference" / "structured_server.py"
KEY = "side-by-side"
MOST_READS = 4096  # the fake engine takes any number at once, so neither server is to wait

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """A running server: where it takes decisions, and how it wants to be asked for so many reads."""

    name: str
    url: str
    path: str
    pid: int
    key: str
    asking: Callable[[str | int], Body]


@dataclass(frozen=True, slots=True)
class Ring:
    """Both servers and the engine that they share."""

    engine: EngineProcess
    ours: Contender
    example: Contender

    @property
    def both(self) -> tuple[Contender, Contender]:
        """In the order in which they are measured."""
        return self.ours, self.example


@contextmanager
def ring(folder: Path, launcher: Sequence[str] = ("-m", "structured_server")) -> Iterator[Ring]:
    """Start the engine and both servers, and end them. `launcher` starts ours.

    Raises:
        NotStarted: one of them did not come up.
    """
    if not EXAMPLE.exists():
        raise NotStarted("vLLM's example server is absent: make reference")
    with ExitStack() as stack:
        engine = EngineProcess(("--steady",), MADE)
        stack.callback(engine.kill)
        engine.start()
        example = _example(engine.url, folder / "example.log")
        stack.callback(_end, example)
        server = launch_proxy(
            folder / "ours.log", _settings(engine.url), {"PYTHONPATH": str(ROOT)}, launcher=launcher
        )
        stack.callback(server.stop)
        server.wait_until(lambda said: said["ready"], START_S)
        _wait_for(example.port)
        time.sleep(2)  # the narrower widths warm up behind readiness
        yield Ring(engine, _ours(server), example.contender)


def _settings(upstream: str) -> list[str]:
    """Return how ours is run: with a key, metrics, limits, and a log line for each request."""
    return [
        *("--upstream", upstream, "--model", "fake", "--tokenizer", str(MADE), "--api-key", KEY),
        *("--log-level", "info", "--deadline-ms", "60000"),
        *("--max-reads", str(MOST_READS), "--max-positions", str(64 * MOST_READS)),
    ]


def _ours(server: Proxy) -> Contender:
    return Contender(
        "structured-server",
        server.url,
        "/decide",
        server.process.pid,
        KEY,
        lambda samples: {"read": {"samples": samples}},
    )


@dataclass(frozen=True, slots=True)
class _Example:
    process: subprocess.Popen[bytes]
    port: int

    @property
    def contender(self) -> Contender:
        return Contender(
            "vLLM's example",
            f"http://127.0.0.1:{self.port}",
            "/v1/systemone",
            self.process.pid,
            "",
            lambda samples: {"model": "fake", "samples": samples},
        )


def _example(upstream: str, log: Path) -> _Example:
    # It asks for a constrained read unless told otherwise, which is another question than ours. It prints a
    # line for each request, and stands still where nobody reads them.
    port = free_port()
    command = [str(VENV / "bin" / "python"), str(EXAMPLE), "--upstream", upstream, "--model", "fake"]
    command += ["--tokenizer", str(MADE), "--host", "127.0.0.1", "--port", str(port), "--no-constrained"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
    return _Example(process, port)


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise NotStarted(f"vLLM's example server does not listen after {START_S:g} s")


def _end(example: _Example) -> None:
    example.process.kill()
    example.process.wait()
