"""Chaos: upstream faults over two replicas, one of which dies and returns; every answer is made again here.

    python -m benchmarks.chaos --out benchmarks/receipts/chaos.json

Two courses, one after the other. In `turns` one replica at a time is sick, and so many of its reads meet a
fault that there is one for every fifth request. In `both` a fifth of all reads of both meets one, whichever
replica it is sent to again: the two attempts that a read has bound what callers then see.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click
import httpx

from benchmarks.reliability.asked import many_kinds
from benchmarks.reliability.load import Body, Reply, Sender, quantile, sending
from benchmarks.reliability.processes import WARM_READS, EngineProcess, Stage, staged
from benchmarks.reliability.truth import Truth
from benchmarks.reliability.verdicts import Check, Measured, at_least, conclude, machine, none_of
from benchmarks.reliability.vitals import metrics_of
from tests.fake_faults import KINDS

Course = Literal["turns", "both"]

RETRYABLE = frozenset({"engine_error", "overloaded", "loading", "deadline_exceeded", "draws_missing"})


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is measured."""

    requests: int = 10_000
    share: float = 0.2
    sick_share: float = 0.5  # in `turns`: of the reads of the sick one; it has half of them
    at_once: int = 32
    read_s: float = 0.01
    deadline_ms: int = 4000
    turn_s: float = 10.0  # in `turns`: how long one replica is the sick one
    away_s: float = 2.0  # how long the replica that dies is away
    least_faults: float = 0.2  # over requests
    success: float = 0.99
    seed: int = 1


SHORT = Settings(requests=400, at_once=16, turn_s=5.0, away_s=0.5, least_faults=0.05, success=0.93)


@dataclass(frozen=True, slots=True)
class Ran:
    """What one course came to."""

    replies: Sequence[Reply]
    again: Sequence[Reply]  # of requests whose error said that they may be sent again: once
    problems: Sequence[str]
    faults: Counter[str]
    reads: int
    seconds: float
    metrics: dict[str, float]

    @property
    def success(self) -> float:
        """The share of requests that were answered."""
        return _share(self.replies, self.replies)

    @property
    def success_when_sent_again(self) -> float:
        """The share that was, by a caller who sends again once."""
        return _share([*self.replies, *self.again], self.replies)

    @property
    def fault_share(self) -> float:
        """Faults over reads, as the engines count them."""
        return self.faults.total() / self.reads

    @property
    def faults_a_request(self) -> float:
        """Faults over requests."""
        return self.faults.total() / (len(self.replies) + len(self.again))


async def measure(settings: Settings) -> Measured:
    """Run both courses and judge every reply."""
    ran = {course: await _run(settings, course) for course in get_args(Course)}
    turns = ran["turns"]
    checks = [check for course, each in ran.items() for check in _checks(course, each, settings)]
    checks.append(at_least("turns: success", turns.success, settings.success))
    checks.append(
        at_least("both: success, sent again once", ran["both"].success_when_sent_again, settings.success)
    )
    lines = [line for course, each in ran.items() for line in _lines(course, each)]
    figures = {course: _figures(each) for course, each in ran.items()}
    return Measured("chaos", asdict(settings), checks, figures, lines)


def _checks(course: str, ran: Ran, settings: Settings) -> list[Check]:
    kinds = Counter(problem.partition(":")[0] for problem in ran.problems)
    return [
        none_of(f"{course}: wrong answers", kinds["wrong"]),
        none_of(f"{course}: lost requests", kinds["lost"] + settings.requests - len(ran.replies)),
        none_of(f"{course}: untyped errors", kinds["untyped"]),
        at_least(f"{course}: faults a request", ran.faults_a_request, settings.least_faults),
        none_of(f"{course}: kinds of faults that did not occur", len(KINDS.keys() - ran.faults.keys())),
    ]


async def _run(settings: Settings, course: Course) -> Ran:
    with staged(2) as stage:
        await asyncio.to_thread(_heal, stage, settings)
        misbehaving = asyncio.create_task(_misbehave(stage, settings, course))
        tallies = _Tallies(stage)
        try:
            async with sending(stage.server.url) as sender:
                begun = sender.now
                replies = await _send_all(sender, stage, settings, tallies)
                seconds = sender.now - begun
                asked = [(reply.number, reply.asked) for reply in replies if reply.code in RETRYABLE]
                again = await sender.closed_loop(asked, settings.at_once)
        finally:
            misbehaving.cancel()
            with suppress(asyncio.CancelledError):
                await misbehaving
        reads, faults = await asyncio.to_thread(tallies.total)
        metrics = await asyncio.to_thread(metrics_of, stage.server.url)
    truth = Truth()
    problems = [problem for reply in (*replies, *again) if (problem := await truth.problem_of(reply))]
    return Ran(replies, again, problems, faults, reads, seconds, metrics)


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


async def _misbehave(stage: Stage, settings: Settings, course: Course) -> None:
    """Keep faults switched as the course wants them; in `turns`, a replica that is away is the sick one."""
    now = asyncio.get_running_loop().time
    begun = now()
    while True:
        sick = int((now() - begun) / settings.turn_s) % 2
        await asyncio.to_thread(_switch, stage.engines, settings, course, sick)
        await asyncio.sleep(0.25)


def _switch(engines: Sequence[EngineProcess], settings: Settings, course: Course, sick: int) -> None:
    """Switch faults on, at an engine that returned once it has been warmed."""
    there = [_is_warm(engine) for engine in engines]
    for index, engine in enumerate(engines):
        share = settings.share if course == "both" else settings.sick_share * (index == sick and all(there))
        if there[index]:
            with suppress(httpx.HTTPError):  # it died just now
                engine.set_faults(
                    delay_s=settings.read_s, mix=list(KINDS), share=share, seed=settings.seed + index
                )


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


def _share(answered: Sequence[Reply], of: Sequence[Reply]) -> float:
    return len({reply.number for reply in answered if reply.code == "ok"}) / len(of)


def _figures(ran: Ran) -> dict[str, Any]:
    seconds = [reply.seconds for reply in ran.replies if reply.code == "ok"]
    names = ("retries_total", "engine_losses_total", "skipped_extra_reads_total", "upstream_errors_total")
    return {
        "requests": len(ran.replies),
        "seconds": ran.seconds,
        "codes": dict(Counter(reply.code for reply in ran.replies)),
        "success": ran.success,
        "success_when_sent_again": ran.success_when_sent_again,
        "reads": ran.reads,
        "faults": dict(ran.faults),
        "share_of_reads_with_a_fault": ran.fault_share,
        "faults_a_request": ran.faults_a_request,
        "degraded": sum(b"extra_reads_skipped" in reply.content for reply in ran.replies),
        "answer_ms": {f"p{share}": 1000 * quantile(seconds, share / 100) for share in (50, 95, 99)},
        "problems": Counter(ran.problems).most_common(20),
        "metrics": {name: ran.metrics.get(f"structured_server_{name}") for name in names},
    }


def _lines(course: str, ran: Ran) -> list[str]:
    figures = _figures(ran)
    return [
        f"{course}: {figures['requests']} requests in {ran.seconds:.1f} s: {figures['codes']}, "
        f"{figures['degraded']} of them on fewer draws than wanted",
        f"{course}: {ran.reads} reads, {ran.fault_share:.1%} with a fault: {figures['faults']}",
        f"{course}: success {ran.success:.2%}; {ran.success_when_sent_again:.2%} when sent again once",
        *(f"{course}: {times} x {problem}" for problem, times in figures["problems"]),
    ]


@click.command()
@click.option("--short", is_flag=True, help="Four hundred requests for each course.")
@click.option("--requests", type=int, help="Requests for each course.")
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
