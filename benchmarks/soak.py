"""Soak: half of the capacity for ten minutes, and what the server holds in the meantime and afterwards.

    python -m benchmarks.soak --out benchmarks/receipts/soak.json

Then five hundred equal alerts at once, over connections that are open already.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks.reliability.asked import NOUL, QUESTIONS, alert, one_read
from benchmarks.reliability.load import Body, Reply, Sender, sending
from benchmarks.reliability.processes import Stage, staged
from benchmarks.reliability.truth import Truth
from benchmarks.reliability.verdicts import Check, Measured, at_most, conclude, machine, none_of
from benchmarks.reliability.vitals import PREFIX, Vitals, cpu_seconds, metrics_of, peak_memory, vitals_of

MIB = 2**20
CANVAS = 64
COUNTED = ("tasks", "connections", "descriptors")


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is measured."""

    seconds: float = 600.0
    permits: int = 16
    read_s: float = 0.05
    factor: float = 0.5
    first_s: float = 60.0  # memory at the end is held against that at the end of this
    growth: float = 1.05
    samples: int = 120
    question_sets: int = 700  # more than the server keeps plans of
    judged: float = 0.01  # the share of answers that are made again
    quiet_s: float = 35.0  # before the idle server is looked at: connections to the engine are kept for 30 s
    slack: int = 2  # what the idle server may hold more of: a poll of the engine may be under way
    alerts: int = 500
    alert_read_s: float = 1.0
    seed: int = 1

    @property
    def rate(self) -> float:
        """Arrivals a second."""
        return self.factor * self.permits / self.read_s


SHORT = Settings(
    seconds=20.0,
    permits=4,
    read_s=0.1,
    first_s=8.0,
    growth=1.15,
    samples=20,
    question_sets=8,
    judged=0.1,
    quiet_s=2.0,
    slack=6,
    alert_read_s=4.0,
)


@dataclass(slots=True)
class Seen:
    """What came back."""

    settings: Settings
    codes: Counter[str] = field(default_factory=Counter)
    kept: list[Reply] = field(default_factory=list)

    def add(self, reply: Reply) -> None:
        """Count a reply, and keep some of them to be judged."""
        self.codes[reply.code] += 1
        if random.Random(reply.number).random() < self.settings.judged:
            self.kept.append(reply)


async def measure(settings: Settings) -> Measured:
    """Load a server of our own, look at it all the while, and judge what it held."""
    most = ("--max-reads", str(settings.permits), "--max-positions", str(settings.permits * CANVAS))
    with staged(1, most) as stage:
        await asyncio.to_thread(stage.engines[0].set_faults, delay_s=settings.read_s)
        idle = await _quiet(settings, stage)
        seen, cpu = Seen(settings), cpu_seconds(stage.server.process.pid)
        async with sending(stage.server.url) as sender:
            looking = asyncio.create_task(_look(settings, stage))
            count = await sender.open_loop(
                settings.rate,
                settings.seconds,
                lambda number: _asked(settings, number),
                seen.add,
                settings.seed,
            )
            vitals = await looking
        cpu = cpu_seconds(stage.server.process.pid) - cpu
        after = await _quiet(settings, stage)
        peak = peak_memory(stage.server.process.pid)
        alerts = await _alerts(settings, stage)
    truth = Truth()
    problems = [problem for reply in seen.kept if (problem := await truth.problem_of(reply))]
    first, last = _memory_around(settings, vitals)
    checks: list[Check] = [
        none_of("requests that were not answered", count - seen.codes["ok"]),
        none_of(f"wrong among {len(seen.kept)} answers made again", len(problems)),
        at_most("memory at the end over that of the first minute", last / first, settings.growth),
        *(
            at_most(
                f"{name}, idle: after over before", _count(after, name), _count(idle, name) + settings.slack
            )
            for name in COUNTED
        ),
        *_growth_under_load(vitals),
        none_of(f"{settings.alerts} equal alerts that failed", settings.alerts - alerts["answered"]),
        at_most("decisions that they cost", alerts["decisions"], 1),
        at_most("reads that they cost", alerts["reads"], 1),
    ]
    figures = {
        "requests": count,
        "codes": dict(seen.codes),
        "memory_first_mib": first / MIB,
        "memory_last_mib": last / MIB,
        "memory_peak_mib": peak / MIB,
        "server_cpu_us_per_request": 1e6 * cpu / count,
        "idle_before": asdict(idle),
        "idle_after": asdict(after),
        "equal_alerts": alerts,
        "samples": [asdict(each) for each in vitals],
    }
    return Measured("soak", asdict(settings), checks, figures, _lines(vitals))


def _asked(settings: Settings, number: int) -> Body:
    """Return a request: a new text each time, under question sets that come round again."""
    chance = random.Random(f"{settings.seed}:{number}")
    turn = number % settings.question_sets
    noul = NOUL | {"instructions": f"Is it urgent for team {turn}?"}
    questions = {"urgent": noul} if turn % 2 else QUESTIONS[-1] | {"urgent": noul}
    return {
        "state": alert(number, chance) * chance.randrange(1, 8),
        "questions": questions,
        "read": {"samples": 1},
        "metadata": {"number": str(number)},
    }


async def _look(settings: Settings, stage: Stage) -> list[Vitals]:
    """Take samples of what the server holds, evenly over the time of the load."""
    found: list[Vitals] = []
    begun = time.monotonic()
    for sample in range(1, settings.samples + 1):
        await asyncio.sleep(begun + sample * settings.seconds / settings.samples - time.monotonic())
        found.append(await asyncio.to_thread(_vitals, stage))
    return found


async def _quiet(settings: Settings, stage: Stage) -> Vitals:
    """Use every permit, let go of all connections, wait, and look at the idle server."""
    async with sending(stage.server.url) as sender:
        await sender.closed_loop(
            ((i, one_read(10**9 + i)) for i in range(4 * settings.permits)), 2 * settings.permits
        )
    await asyncio.sleep(settings.quiet_s)
    return await asyncio.to_thread(_vitals, stage)


def _vitals(stage: Stage) -> Vitals:
    return vitals_of(stage.server.process.pid, metrics_of(stage.server.url))


def _memory_around(settings: Settings, vitals: Sequence[Vitals]) -> tuple[float, float]:
    """Return the median memory in the second half of the first minute, and in as long a time at the end."""
    share = settings.first_s / settings.seconds
    upto = max(2, round(share * len(vitals)))
    span = max(1, upto // 2)
    return (
        statistics.median(each.memory for each in vitals[upto - span : upto]),
        statistics.median(each.memory for each in vitals[-span:]),
    )


def _growth_under_load(vitals: Sequence[Vitals]) -> list[Check]:
    """Hold the largest count of the last third against that of the first two."""
    third = len(vitals) // 3
    checks = []
    for name in COUNTED:
        before = max(_count(each, name) for each in vitals[:-third])
        after = max(_count(each, name) for each in vitals[-third:])
        checks.append(at_most(f"{name} under load, at most: last third over before", after, 1.5 * before + 8))
    return checks


def _count(vitals: Vitals, name: str) -> int:
    count: int = getattr(vitals, name)
    return count


async def _alerts(settings: Settings, stage: Stage) -> dict[str, int]:
    """Send equal alerts at once, while a read takes longer than they take to come in."""
    await asyncio.to_thread(stage.engines[0].set_faults, delay_s=settings.alert_read_s)
    before = await asyncio.to_thread(metrics_of, stage.server.url)
    async with sending(stage.server.url) as sender:
        await _connect(sender, settings.alerts)
        alike = one_read(10**10, deadline_ms=60_000)
        replies = await sender.closed_loop(((i, alike) for i in range(settings.alerts)), settings.alerts)
    after = await asyncio.to_thread(metrics_of, stage.server.url)

    def more(name: str) -> int:
        return int(after[PREFIX + name] - before.get(PREFIX + name, 0.0))

    return {
        "answered": sum(reply.code == "ok" for reply in replies),
        "decisions": more("decisions_total"),
        "shared": more("shared_decisions_total"),
        "reads": more("reads_total"),
    }


async def _connect(sender: Sender, connections: int) -> None:
    """Open connections with requests that are refused at once."""
    refused: dict[str, Any] = {"state": "", "questions": {}}
    await sender.closed_loop(((i, refused) for i in range(connections)), connections)


def _lines(vitals: Sequence[Vitals]) -> list[str]:
    shown = vitals[:: max(1, len(vitals) // 10)]
    return [
        f"{each.at - vitals[0].at:6.0f} s  {each.memory / MIB:6.1f} MiB  {each.tasks} tasks  "
        f"{each.connections} connections  {each.descriptors} descriptors  {each.threads} threads"
        for each in shown
    ]


@click.command()
@click.option("--short", is_flag=True, help="Twenty seconds, with wider limits.")
@click.option("--seconds", type=float, help="How long.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt here.")
def main(*, short: bool, seconds: float | None, seed: int, out: Path | None) -> None:
    """Load a server of our own with half of what it can serve. Exit code 1 if a limit is broken."""
    settings = SHORT if short else Settings()
    changed: dict[str, Any] = {"seed": seed} | ({"seconds": seconds} if seconds else {})
    begun, at_first = time.monotonic(), machine()
    conclude(asyncio.run(measure(Settings(**asdict(settings) | changed))), begun, at_first, out)


if __name__ == "__main__":
    main()
