"""Overload: arrivals at twice what the permits can serve, whatever comes back.

    python -m benchmarks.overload --out benchmarks/receipts/overload.json

The engine is fake and takes a set time for each read, so that the capacity is known: permits over that time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks.reliability.asked import one_read
from benchmarks.reliability.load import Reply, Sender, quantile, sending
from benchmarks.reliability.processes import Stage, staged
from benchmarks.reliability.verdicts import Check, Measured, at_least, at_most, conclude, machine, none_of
from benchmarks.reliability.vitals import cpu_seconds

DEADLINES_MS = (8000, 3000, 8000, 2100)
"""Asked for in turn. The last is hardly longer than the queue, so that some of those come close to it."""

SHED = ("overloaded",)
UNTYPED = ("untyped", "internal")
CANVAS = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is measured. What is `unhurried` allows for a busy machine, and is not for figures to keep."""

    seconds: float = 60.0
    permits: int = 16
    read_s: float = 0.05
    factor: float = 2.0
    seed: int = 1
    idle_requests: int = 200
    share_of_capacity: float = 0.9
    transport_s: float = 0.05  # what the way there and back may add to a deadline
    shed_s: float = 0.05

    @property
    def capacity(self) -> float:
        """Reads a second."""
        return self.permits / self.read_s


SHORT = Settings(
    seconds=6.0,
    permits=4,
    read_s=0.2,
    idle_requests=10,
    share_of_capacity=0.5,
    transport_s=0.5,
    shed_s=1.0,
)
"""For a busy machine: the limits that depend on its speed are wide, those that do not are the same."""


@dataclass(slots=True)
class Seen:
    """What came back, counted as it came."""

    codes: Counter[str] = field(default_factory=Counter)
    shed_s: list[float] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)
    answer_ends: list[float] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)  # from an answer to its deadline
    lag_s: list[float] = field(default_factory=list)
    overdue: int = 0  # answers that the server itself took longer for than their deadline

    def add(self, reply: Reply) -> None:
        """Count a reply."""
        self.codes[reply.code] += 1
        self.lag_s.append(reply.lag)
        if reply.code in SHED:
            self.shed_s.append(reply.seconds)
        elif reply.code == "ok":
            self.answer_s.append(reply.seconds)
            self.answer_ends.append(reply.end)
            deadline_ms = reply.asked["deadline_ms"]
            self.left_s.append(deadline_ms / 1000 - reply.seconds)
            self.overdue += reply.said["timings_ms"]["total"] > deadline_ms


async def measure(settings: Settings) -> Measured:
    """Start what it takes, load it, and judge what came back."""
    most = ("--max-reads", str(settings.permits), "--max-positions", str(settings.permits * CANVAS))
    with staged(1, most) as stage:
        await asyncio.to_thread(stage.engines[0].set_faults, delay_s=settings.read_s)
        async with sending(stage.server.url) as sender:
            idle = await sender.closed_loop(
                ((-1 - i, one_read(-1 - i)) for i in range(settings.idle_requests)), 1
            )
        async with sending(stage.server.url) as sender:
            return await _loaded(settings, stage, sender, idle)


async def _loaded(settings: Settings, stage: Stage, sender: Sender, idle: list[Reply]) -> Measured:
    seen, cpu = Seen(), cpu_seconds(stage.server.process.pid)
    rate = settings.factor * settings.capacity
    count = await sender.open_loop(
        rate,
        settings.seconds,
        lambda number: one_read(number, deadline_ms=DEADLINES_MS[number % len(DEADLINES_MS)]),
        seen.add,
        settings.seed,
    )
    cpu = cpu_seconds(stage.server.process.pid) - cpu
    idle_p99 = quantile([reply.seconds for reply in idle], 0.99)
    begin = min(1.0, settings.seconds / 4)
    served = sum(begin <= end < settings.seconds for end in seen.answer_ends) / (settings.seconds - begin)
    late = sum(left < -settings.transport_s for left in seen.left_s)
    shed_p99 = quantile(seen.shed_s, 0.99)
    checks: list[Check] = [
        none_of("idle requests that failed", sum(reply.code != "ok" for reply in idle)),
        none_of("500s and untyped errors", sum(seen.codes[code] for code in UNTYPED)),
        none_of("dropped connections", seen.codes["dropped"]),
        none_of("requests without a reply", count - seen.codes.total()),
        none_of("answers past their deadline by the server's clock", seen.overdue),
        none_of(f"answers more than {1000 * settings.transport_s:g} ms past it by the sender's", late),
        at_least("requests shed", len(seen.shed_s), 1),
        at_most("p99 of shed answers", 1000 * shed_p99, 1000 * max(settings.shed_s, 10 * idle_p99), " ms"),
        at_least("answers a second", served, settings.share_of_capacity * settings.capacity),
        at_most("answers a second", served, 1.1 * settings.capacity),
    ]
    figures: dict[str, Any] = {
        "arrivals": count,
        "arrivals_per_second": count / settings.seconds,
        "capacity_per_second": settings.capacity,
        "answers_per_second": served,
        "share_of_capacity": served / settings.capacity,
        "codes": dict(seen.codes),
        "idle_ms": _spread([reply.seconds for reply in idle]),
        "shed_ms": _spread(seen.shed_s),
        "answer_ms": _spread(seen.answer_s),
        "least_left_to_deadline_ms": 1000 * min(seen.left_s, default=float("nan")),
        "sender_lag_ms": _spread(seen.lag_s),
        "server_cpu_us_per_request": 1e6 * cpu / count,
    }
    lines = (
        f"{count} arrivals in {settings.seconds:g} s: {dict(seen.codes)}",
        f"answers: {served:.1f} a second of {settings.capacity:g} ({served / settings.capacity:.1%})",
        f"shed: p50 {figures['shed_ms']['p50']:.1f} ms, p99 {figures['shed_ms']['p99']:.1f} ms; "
        f"idle answers: p50 {figures['idle_ms']['p50']:.1f} ms, p99 {figures['idle_ms']['p99']:.1f} ms",
        f"closest to its deadline: {figures['least_left_to_deadline_ms']:.0f} ms before it",
        f"sender: p99 {figures['sender_lag_ms']['p99']:.1f} ms behind its times",
    )
    return Measured("overload", asdict(settings), checks, figures, lines)


def _spread(seconds: list[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: 1000 * quantile(seconds, share) for name, share in shares.items()}


@click.command()
@click.option("--short", is_flag=True, help="Six seconds with limits for a busy machine.")
@click.option("--seconds", type=float, help="How long requests arrive.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt here.")
def main(*, short: bool, seconds: float | None, seed: int, out: Path | None) -> None:
    """Load a server of our own with twice what it can serve. Exit code 1 if a limit is broken."""
    settings = SHORT if short else Settings()
    settings = Settings(**asdict(settings) | {"seed": seed} | ({"seconds": seconds} if seconds else {}))
    begun, at_first = time.monotonic(), machine()
    conclude(asyncio.run(measure(settings)), begun, at_first, out)


if __name__ == "__main__":
    main()
