"""Restart: the engine is killed under load and started again; the server stays, and the timeline is printed.

    python -m benchmarks.restart --out benchmarks/receipts/restart.json
    python -m benchmarks.restart --engine vllm --out benchmarks/receipts/restart_vllm.json

With `--engine vllm` it is the real vLLM server on CPU, which `make engine` sets up.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import click
import httpx

from benchmarks.reliability.asked import one_read
from benchmarks.reliability.load import Reply, Sender, sending
from benchmarks.reliability.processes import TOKENIZER, EngineProcess, launch
from benchmarks.reliability.truth import TYPED, Truth
from benchmarks.reliability.verdicts import Check, Measured, at_least, at_most, conclude, machine, none_of
from tests.engine import server as vllm
from tests.proxy import Proxy

POLL_S = 0.05
FLIP_S = 2.0
"""Within this time of the engine's death `/ready` must say so."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is measured."""

    engine: Literal["fake", "vllm"] = "fake"
    before_s: float = 5.0
    away_s: float = 5.0
    after_s: float = 5.0
    at_once: int = 4
    read_s: float = 0.05  # of the fake engine
    deadline_ms: int = 8000
    start_limit_s: float = 60.0
    flip_s: float = FLIP_S


SHORT = Settings(before_s=1.5, away_s=2.0, after_s=1.5, flip_s=5.0)
VLLM = Settings(engine="vllm", before_s=20.0, away_s=5.0, after_s=20.0, start_limit_s=vllm.START_LIMIT)


class Mortal(Protocol):
    """An engine that can be killed and started again, on the same port."""

    @property
    def url(self) -> str:
        """Its base URL."""

    def start(self) -> None:
        """Start it."""

    def kill(self) -> None:
        """Kill it."""


@dataclass(slots=True)
class RealEngine:
    """The CPU vLLM server on a port that it keeps."""

    port: int = field(default_factory=vllm.free_port)
    _running: vllm.Engine | None = None

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, without waiting until it is ready: that is the server's business."""
        self._running = vllm.start_engine(port=self.port, wait=False)

    def kill(self) -> None:
        """Send SIGKILL to the group of processes that it started."""
        if self._running is not None:
            self._running.kill()
            self._running = None


@dataclass(slots=True)
class Timeline:
    """What happened when, in seconds since the load began."""

    events: list[tuple[float, str]] = field(default_factory=list)
    ready: list[tuple[float, bool]] = field(default_factory=list)
    live: Counter[int] = field(default_factory=Counter)

    def add(self, at: float, what: str) -> None:
        """Take down an event."""
        self.events.append((at, what))

    def first_ready(self, is_ready: bool, since: float) -> float:
        """Return when `/ready` first said so after a moment; nan if it never did."""
        return next((at for at, said in self.ready if at >= since and said is is_ready), float("nan"))


async def measure(settings: Settings) -> Measured:
    """Run the load through the engine's death and return, and judge it."""
    with _staged(settings) as (proxy, engine):
        timeline, stopping = Timeline(), asyncio.Event()
        async with sending(proxy.url) as sender:
            watching = asyncio.create_task(_watch(proxy, sender, timeline, stopping))
            loading = [
                asyncio.create_task(_load(sender, settings, worker, stopping))
                for worker in range(settings.at_once)
            ]
            killed, started = await _kill_and_start(settings, sender, engine, timeline)
            recovered = await _until_ready_again(settings, sender, timeline, started)
            await asyncio.sleep(settings.after_s)
            stopping.set()
            replies = sorted(
                (r for each in await asyncio.gather(*loading) for r in each), key=lambda r: r.end
            )
            await watching
        same_process = proxy.process.poll() is None
    lost = timeline.first_ready(False, killed)
    back = next((r.end for r in replies if r.code == "ok" and r.sent >= started), float("nan"))
    failed = next((r.end for r in replies if r.code != "ok" and r.end >= killed), float("nan"))
    timeline.add(failed, "first request that fails")
    timeline.add(lost, "/ready says 503")
    timeline.add(recovered, "/ready says 200")
    timeline.add(back, "first answer of a request sent since")
    unsure = (killed - settings.deadline_ms / 1000, back)
    steady = [r for r in replies if not unsure[0] <= r.sent <= back]
    wrong = await _wrong(replies) if settings.engine == "fake" else 0
    checks: list[Check] = [
        Check("the server that was there at first", "yes" if same_process else "no", "yes", same_process),
        at_most("from the kill to /ready 503", lost - killed, settings.flip_s, " s"),
        at_most("from the start to /ready 200", recovered - started, settings.start_limit_s, " s"),
        at_least("answers after that", sum(r.code == "ok" and r.sent > back for r in replies), 1),
        none_of("failures before the kill and after the return", sum(r.code != "ok" for r in steady)),
        none_of("untyped errors", sum(r.code not in ("ok", *TYPED) for r in replies)),
        none_of("wrong answers", wrong),
        none_of("/live other than 200", timeline.live.total() - timeline.live[200]),
    ]
    figures = {
        "events": sorted(timeline.events),
        "codes": dict(Counter(reply.code for reply in replies)),
        "seconds_without_answers": back - killed,
    }
    return Measured("restart", asdict(settings), checks, figures, _lines(timeline, replies))


@contextmanager
def _staged(settings: Settings) -> Iterator[tuple[Proxy, Mortal]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fake = settings.engine == "fake"
        engine: Mortal = EngineProcess() if fake else RealEngine()
        stack.callback(engine.kill)
        engine.start()
        tokenizer = TOKENIZER if fake else vllm.default_checkpoint()
        named = ("--model", "fake" if fake else "dgemma", "--tokenizer", str(tokenizer))
        proxy = launch(folder / "log", ["--upstream", engine.url, *named])
        stack.callback(proxy.stop)
        proxy.wait_until(lambda said: said["ready"], settings.start_limit_s)
        time.sleep(1.0)  # the narrower widths warm up behind readiness
        if isinstance(engine, EngineProcess):
            engine.set_faults(delay_s=settings.read_s)
        yield proxy, engine


async def _kill_and_start(
    settings: Settings, sender: Sender, engine: Mortal, timeline: Timeline
) -> tuple[float, float]:
    await asyncio.sleep(settings.before_s)
    killed = sender.now
    timeline.add(killed, "SIGKILL to the engine")
    await asyncio.to_thread(engine.kill)
    await asyncio.sleep(settings.away_s)
    started = sender.now
    timeline.add(started, "the engine is started again")
    await asyncio.to_thread(engine.start)
    return killed, started


async def _until_ready_again(settings: Settings, sender: Sender, timeline: Timeline, started: float) -> float:
    """Return when `/ready` says so again; nan if it does not in time."""
    end = started + settings.start_limit_s
    while math.isnan(at := timeline.first_ready(True, started)) and sender.now < end:  # noqa: ASYNC110 polling
        await asyncio.sleep(POLL_S)
    return at


async def _load(sender: Sender, settings: Settings, worker: int, stopping: asyncio.Event) -> list[Reply]:
    """Send one request after the other. After an error wait a little, as callers should."""
    replies: list[Reply] = []
    number = worker
    while not stopping.is_set():
        reply = await sender.send(number, one_read(number, deadline_ms=settings.deadline_ms))
        replies.append(reply)
        number += settings.at_once
        if reply.code != "ok":
            await asyncio.sleep(0.1)
    return replies


async def _watch(proxy: Proxy, sender: Sender, timeline: Timeline, stopping: asyncio.Event) -> None:
    """Ask the probes again and again."""
    async with httpx.AsyncClient(base_url=proxy.url, timeout=10) as http:
        while not stopping.is_set():
            with suppress(httpx.HTTPError):
                timeline.ready.append((sender.now, (await http.get("/ready")).status_code == 200))
            try:
                timeline.live[(await http.get("/live")).status_code] += 1
            except httpx.HTTPError:
                timeline.live[0] += 1
            await asyncio.sleep(POLL_S)


async def _wrong(replies: Sequence[Reply]) -> int:
    truth = Truth()
    problems = [await truth.problem_of(reply) or "" for reply in replies]
    return sum(problem.startswith("wrong") for problem in problems)


def _lines(timeline: Timeline, replies: Sequence[Reply]) -> list[str]:
    """Lay out the events, and second by second what was answered."""
    rows: list[tuple[float, str]] = [*timeline.events]
    seconds: dict[int, Counter[str]] = {}
    for reply in replies:
        seconds.setdefault(int(reply.end), Counter())[reply.code] += 1
    for second, codes in seconds.items():
        rows.append((second + 1, "    " + ", ".join(f"{count} {code}" for code, count in codes.items())))
    return [f"{at:7.2f} s  {what}" for at, what in sorted(rows)]


@click.command()
@click.option("--engine", type=click.Choice(["fake", "vllm"]), default="fake", show_default=True)
@click.option("--short", is_flag=True, help="A few seconds, with the fake engine.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt here.")
def main(*, engine: str, short: bool, out: Path | None) -> None:
    """Kill the engine under load and start it again. Exit code 1 if a limit is broken."""
    settings = SHORT if short else VLLM if engine == "vllm" else Settings()
    begun, at_first = time.monotonic(), machine()
    conclude(asyncio.run(measure(settings)), begun, at_first, out)


if __name__ == "__main__":
    main()
