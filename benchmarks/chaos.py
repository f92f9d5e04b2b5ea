"""Chaos: upstream faults over two replicas, one of which dies and returns; every answer is made again here.

    python -m benchmarks.chaos --out benchmarks/receipts/chaos.json

A fifth of all reads of both replicas meets a fault, those that are made again too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import httpx

from benchmarks.reliability.asked import many_kinds
from benchmarks.reliability.load import Body, Reply, Sender, quantile, sending
from benchmarks.reliability.processes import WARM_READS, EngineProcess, Stage, staged
from benchmarks.reliability.truth import Truth
from benchmarks.reliability.verdicts import Measured, at_least, conclude, machine, none_of
from benchmarks.reliability.vitals import metrics_of
from tests.fake_faults import KINDS

LEAST_OF_SHARE = 0.9
"""Of the share that was asked for: reads of an engine that is being warmed meet none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is measured."""

    requests: int = 10_000
    share: float = 0.2
    at_once: int = 32
    read_s: float = 0.01
    deadline_ms: int = 8000
    away_s: float = 2.0  # how long the replica that dies is away
    success: float = 0.99
    seed: int = 1


SHORT = Settings(requests=400, at_once=16, away_s=0.5, success=0.94)


@dataclass(frozen=True, slots=True)
class Ran:
    """What it came to."""

    replies: Sequence[Reply]
    problems: Sequence[str]
    faults: Counter[str]
    reads: int
    seconds: float
    metrics: dict[str, float]

    @property
    def success(self) -> float:
        """The share of requests that were answered."""
        return sum(reply.code == "ok" for reply in self.replies) / len(self.replies)

    @property
    def fault_share(self) -> float:
        """Faults over reads, as the engines count them."""
        return self.faults.total() / self.reads


async def measure(settings: Settings) -> Measured:
    """Send all requests and judge every reply."""
    ran = await _run(settings)
    kinds = Counter(problem.partition(":")[0] for problem in ran.problems)
    checks = [
        none_of("wrong answers", kinds["wrong"]),
        none_of("lost requests", kinds["lost"] + settings.requests - len(ran.replies)),
        none_of("untyped errors", kinds["untyped"]),
        at_least("reads that met a fault", ran.fault_share, LEAST_OF_SHARE * settings.share),
        none_of("kinds of faults that did not occur", len(KINDS.keys() - ran.faults.keys())),
        at_least("success", ran.success, settings.success),
    ]
    return Measured("chaos", asdict(settings), checks, _figures(ran), _lines(ran))


async def _run(settings: Settings) -> Ran:
    with staged(2) as stage:
        await asyncio.to_thread(_heal, stage, settings)
        misbehaving = asyncio.create_task(_misbehave(stage, settings))
        tallies = _Tallies(stage)
        try:
            async with sending(stage.server.url) as sender:
                begun = sender.now
                replies = await _send_all(sender, stage, settings, tallies)
                seconds = sender.now - begun
        finally:
            misbehaving.cancel()
            with suppress(asyncio.CancelledError):
                await misbehaving
        reads, faults = await asyncio.to_thread(tallies.total)
        metrics = await asyncio.to_thread(metrics_of, stage.server.url)
    truth = Truth()
    problems = [problem for reply in replies if (problem := await truth.problem_of(reply))]
    return Ran(replies, problems, faults, reads, seconds, metrics)


async def _send_all(sender: Sender, stage: Stage, settings: Settings, tallies: _Tallies) -> list[Reply]:
    """Send all requests; when half of them are out, a replica dies, and returns."""
    half = settings.requests // 2

    def asked(numbers: range) -> list[tuple[int, Body]]:
        return [(n, many_kinds(n, settings.seed, deadline_ms=settings.deadline_ms)) for n in numbers]

    replies = await sender.closed_loop(asked(range(half)), settings.at_once)

    async def die_and_return() -> None:
        await asyncio.to_thread(tallies.keep, 0)
        await asyncio.to_thread(stage.engines[0].kill)
        await asyncio.sleep(settings.away_s)
        await asyncio.to_thread(stage.engines[0].start)

    dying = asyncio.create_task(die_and_return())
    replies += await sender.closed_loop(asked(range(half, settings.requests)), settings.at_once)
    await dying
    return replies


async def _misbehave(stage: Stage, settings: Settings) -> None:
    """Keep faults switched on, at the replica that returns too, once it has been warmed."""
    while True:
        for index, engine in enumerate(stage.engines):
            await asyncio.to_thread(_switch, engine, settings, settings.seed + index)
        await asyncio.sleep(0.25)


def _switch(engine: EngineProcess, settings: Settings, seed: int) -> None:
    if _is_warm(engine):
        with suppress(httpx.HTTPError):  # it died just now
            engine.set_faults(delay_s=settings.read_s, mix=list(KINDS), share=settings.share, seed=seed)


def _is_warm(engine: EngineProcess) -> bool:
    try:
        return bool(engine.tally()["reads"] >= WARM_READS)
    except httpx.HTTPError:
        return False


def _heal(stage: Stage, settings: Settings) -> None:
    for engine in stage.engines:
        engine.set_faults(delay_s=settings.read_s)


class _Tallies:
    """What the engines counted, of those that died too."""

    def __init__(self, stage: Stage) -> None:
        self._engines = stage.engines
        self._reads = 0
        self._faults: Counter[str] = Counter()

    def keep(self, index: int) -> None:
        """Take over what an engine counted that is about to die."""
        told: dict[str, Any] = self._engines[index].tally()
        self._reads += told["reads"]
        self._faults.update(told["faults"])

    def total(self) -> tuple[int, Counter[str]]:
        """Return how many reads there were, and the faults that they met."""
        for index in range(len(self._engines)):
            self.keep(index)
        return self._reads, self._faults


def _figures(ran: Ran) -> dict[str, Any]:
    seconds = [reply.seconds for reply in ran.replies if reply.code == "ok"]
    names = ("retries_total", "engine_losses_total", "skipped_extra_reads_total", "upstream_errors_total")
    return {
        "requests": len(ran.replies),
        "seconds": ran.seconds,
        "codes": dict(Counter(reply.code for reply in ran.replies)),
        "success": ran.success,
        "reads": ran.reads,
        "faults": dict(ran.faults),
        "share_of_reads_with_a_fault": ran.fault_share,
        "degraded": sum(b"extra_reads_skipped" in reply.content for reply in ran.replies),
        "answer_ms": {f"p{share}": 1000 * quantile(seconds, share / 100) for share in (50, 95, 99)},
        "problems": Counter(ran.problems).most_common(20),
        "metrics": {name: ran.metrics.get(f"structured_server_{name}") for name in names},
    }


def _lines(ran: Ran) -> list[str]:
    figures = _figures(ran)
    return [
        f"{figures['requests']} requests in {ran.seconds:.1f} s: {figures['codes']}, "
        f"{figures['degraded']} of them on fewer draws than wanted",
        f"{ran.reads} reads, {ran.fault_share:.1%} with a fault: {figures['faults']}",
        f"success {ran.success:.2%}",
        *(f"{times} x {problem}" for problem, times in figures["problems"]),
    ]


@click.command()
@click.option("--short", is_flag=True, help="Four hundred requests.")
@click.option("--requests", type=int, help="How many requests.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt here.")
def main(*, short: bool, requests: int | None, seed: int, out: Path | None) -> None:
    """Inject faults upstream and make every answer again. Exit code 1 if a limit is broken."""
    settings = SHORT if short else Settings()
    changed = {"seed": seed} | ({"requests": requests} if requests else {})
    begun, at_first = time.monotonic(), machine()
    conclude(asyncio.run(measure(Settings(**asdict(settings) | changed))), begun, at_first, out)


if __name__ == "__main__":
    main()
