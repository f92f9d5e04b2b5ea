"""A site of processes: two engines, the router smg in front of them, and our server before the router."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from structured_server.api.query import query_of
from structured_server.api.service import assemble
from structured_server.core.reads import Prompt, ReadRequest
from structured_server.core.tokens import Kind
from structured_server.settings import Settings
from structured_server.tokenizer import load_tokenizer
from structured_server.wire.decide_rendering import render
from structured_server.wire.decide_request import DecideRequest
from tests.engine.server import free_port
from tests.fake_backend import FakeBackend
from tests.fake_replies import expected_logprob
from tests.proxy import Proxy, launch_proxy

TOKENIZER = str(Path(__file__).parents[2] / "structured_server" / "data" / "triage")
SMG = Path(sys.executable).with_name("smg")
START_LIMIT = 60.0
SERVING: dict[str, Any] = {"model": "fake", "prompt_transport": "chat", "scaffold": "canvas"}


def require_smg() -> None:
    """Skip the test where the router is not installed."""
    if not SMG.exists():
        pytest.skip(f"there is no smg beside {sys.executable}: pip install 'smg>=1.13'")


def wait_until(condition: Callable[[], bool], what: str, limit: float = START_LIMIT) -> None:
    """Wait for a condition; what cannot be reached yet does not fulfil it."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.05)
    pytest.fail(f"{what} is not so after {limit:g} s")


@dataclass(slots=True)
class Process:
    """A server of ours on a port that it keeps."""

    arguments: Sequence[str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx.Response:
        """Send a GET."""
        return httpx.get(self.url + path, timeout=10)

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        self.process.send_signal(how)
        self.process.wait(15)


@dataclass(frozen=True, slots=True)
class Site:
    """What runs, and what was decided there."""

    engines: tuple[Process, Process]
    router: Process
    proxy: Proxy

    def prompts(self) -> list[set[tuple[int, ...]]]:
        """Return which prompts each engine has read; what is dead has read none."""
        found = []
        for engine in self.engines:
            try:
                found.append({tuple(prompt) for prompt in engine.get("/prompts").json()})
            except httpx.TransportError:
                found.append(set())
        return found

    def healthy(self) -> int:
        """Return how many engines the router thinks well."""
        said = self.router.get("/readiness").json()
        healthy: int = said.get("healthy_workers", 0)
        return healthy

    def decide_all(self, requests: Sequence[dict[str, Any]], at_once: int = 4) -> list[Any]:
        """Send the requests, so many at a time, and return the answers. Each of them must be a 200."""
        with ThreadPoolExecutor(at_once) as pool:
            replies = list(pool.map(self.proxy.decide, requests))
        assert [] == [reply.text for reply in replies if reply.status_code != 200]
        return [reply.json()["answers"] for reply in replies]


def recomputed(requests: Sequence[dict[str, Any]]) -> list[Any]:
    """Return what an engine of that kind answers, computed in this process, with nothing on a wire."""
    tokenizer = load_tokenizer(TOKENIZER)

    @cache
    def as_engine_sees_it(prompt: Prompt) -> Sequence[int]:
        """Break control text, as it is broken on the way to a chat route."""
        return tokenizer.encode_prompt(
            [
                each if each.kind is Kind.CONTROL else replace(each, text=tokenizer.neutralise(each.text))
                for each in prompt.segments
            ]
        )

    def logprob(request: ReadRequest, token_id: int, position: int) -> float:
        return expected_logprob(as_engine_sees_it(request.prompt), request.canvas, token_id, position)

    backend = FakeBackend(
        logprob=logprob, max_steps=8, constrained=True, generation=True, chat=True, continues=False
    )
    service = assemble(Settings(upstream="http://engine", **SERVING), tokenizer, backend)

    async def answers(request: dict[str, Any]) -> Any:
        asked = DecideRequest.model_validate_json(json.dumps(request))
        outcome = await service.driver.decide(query_of(asked, service, asked.state_text()))
        about: Any = {"identifier": "", "model": "", "backend": "", "model_revision": None}
        return orjson.loads(orjson.dumps(render(outcome, **about, metadata={})))["answers"]

    async def every() -> list[Any]:
        return [await answers(request) for request in requests]

    return asyncio.run(every())


@contextmanager
def running_site(folder: Path, *, policy: str) -> Iterator[Site]:
    """Run a site until the block ends."""
    with ExitStack() as stack:

        def launch(name: str, arguments: Sequence[str], port: int) -> Process:
            process = Process(arguments, port, folder / name)
            stack.callback(process.kill)
            return process

        ports = [free_port() for _ in range(4)]
        fake = (sys.executable, "-m", "tests.fake_engine", "--tokenizer", TOKENIZER, "--remembers")
        one, other = (launch(f"engine{port}", [*fake, "--port", str(port)], port) for port in ports[:2])
        for engine in (one, other):
            wait_until(lambda engine=engine: engine.get("/health").is_success, "the engine's start")  # type: ignore[misc]
        told = {
            "--host": "127.0.0.1",
            "--port": str(ports[2]),
            "--prometheus-host": "127.0.0.1",
            "--prometheus-port": str(ports[3]),
            "--policy": policy,
            "--log-level": "warn",
            # Quicker than they are by default, which is 3 failures a minute apart.
            "--worker-startup-check-interval": "1",
            "--health-check-interval-secs": "1",
            "--health-check-timeout-secs": "1",
            "--health-failure-threshold": "1",
            "--health-success-threshold": "1",
        }
        arguments = [word for pair in told.items() for word in pair]
        router = launch(
            "smg", [str(SMG), "launch", "--worker-urls", one.url, other.url, *arguments], ports[2]
        )
        wait_until(lambda: router.get("/readiness").is_success, "the router's readiness")
        settings = {
            "--upstream": router.url,
            "--model": "fake",
            "--tokenizer": TOKENIZER,
            "--prompt-transport": "chat",
            "--scaffold": "canvas",
            "--health-path": "/readiness",
            "--max-wait-ms": "60000",  # a busy machine is slow, and this is about none being lost
            "--deadline-ms": "30000",
        }
        proxy = launch_proxy(folder / "proxy", [word for pair in settings.items() for word in pair])
        stack.callback(proxy.stop)
        site = Site((one, other), router, proxy)
        proxy.wait_until_ready()
        wait_until(lambda: site.healthy() == 2, "the health of both engines")
        yield site
