"""Hostile input: what it costs to refuse it, and whether ordinary requests are answered meanwhile.

    python -m benchmarks.hostile --out benchmarks/receipts/hostile.json

Each attack comes several times at once. Memory is the server process's own, from /proc.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from benchmarks.reliability.asked import one_read
from benchmarks.reliability.attacks import Attack, attacks
from benchmarks.reliability.load import Reply, Sender, quantile, sending
from benchmarks.reliability.processes import Stage, staged
from benchmarks.reliability.verdicts import Check, Measured, at_most, conclude, machine, none_of
from benchmarks.reliability.vitals import cpu_seconds, forget_peak, peak_memory, vitals_of

MIB = 2**20
PROBE_PAUSE_S = 0.05
SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is measured."""

    at_once: int = 8  # of each attack but the slow ones
    slow: int = 500  # connections that send a byte now and then
    slow_s: float = 60.0
    receive_s: float = 30.0  # what the server allows
    large_mib: int = 100
    read_s: float = 0.02
    probe_p99_s: float = 0.5
    growth_mib: float = 96.0
    growth_of_cut_mib: float = 256.0  # a text that is cut is tokenised, and the answer says how long it was


SHORT = Settings(at_once=3, slow=100, slow_s=20.0, receive_s=2.0, large_mib=20, probe_p99_s=5.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one attack came to."""

    name: str
    statuses: dict[str, int]
    seconds: float  # of the slowest refusal
    cpu_s: float
    before_mib: float
    peak_mib: float
    after_mib: float
    probes: int
    probes_failed: int
    probe_p99_ms: float


@dataclass(slots=True)
class Probing:
    """Ordinary requests, one after the other."""

    replies: list[Reply] = field(default_factory=list)

    async def run(self, sender: Sender, numbers: range) -> None:
        """Send until cancelled."""
        for number in numbers:
            self.replies.append(await sender.send(number, one_read(number)))
            await asyncio.sleep(PROBE_PAUSE_S)


async def measure(settings: Settings) -> Measured:
    """Attack a server of our own in every way."""
    found: list[tuple[Attack, Cost]] = []
    limits = ("--receive-timeout-ms", str(round(1000 * settings.receive_s)))
    with staged(1, limits) as stage:
        await asyncio.to_thread(stage.engines[0].set_faults, delay_s=settings.read_s)
        for turn, attack in enumerate(attacks(settings.large_mib, settings.slow_s)):
            times = settings.slow if attack.slow else settings.at_once
            found.append((attack, await _cost(attack, times, stage, turn)))
        alive = stage.server.process.poll() is None
    checks = [Check("the server that was there at first", "yes" if alive else "no", "yes", alive)]
    for attack, cost in found:
        checks += _checks(attack, cost, settings)
    lines = [_line(cost) for _, cost in found]
    return Measured("hostile", asdict(settings), checks, {c.name: asdict(c) for _, c in found}, lines)


def _checks(attack: Attack, cost: Cost, settings: Settings) -> list[Check]:
    astray = {status: times for status, times in cost.statuses.items() if status not in attack.wanted}
    growth = settings.growth_of_cut_mib if "200" in attack.wanted else settings.growth_mib
    return [
        Check(f"{cost.name}: answers", _told(cost.statuses), " or ".join(attack.wanted), not astray),
        none_of(f"{cost.name}: ordinary requests that failed", cost.probes_failed),
        at_most(f"{cost.name}: their p99", cost.probe_p99_ms, 1000 * settings.probe_p99_s, " ms"),
        at_most(f"{cost.name}: memory at most", cost.peak_mib - cost.before_mib, growth, " MiB more"),
    ]


async def _cost(attack: Attack, times: int, stage: Stage, turn: int) -> Cost:
    """Attack so many times at once, sending ordinary requests beside it."""
    pid = stage.server.process.pid
    before, cpu = vitals_of(pid).memory, cpu_seconds(pid)
    forget_peak(pid)
    probing = Probing()
    async with sending(stage.server.url) as sender:
        beside = asyncio.create_task(probing.run(sender, range(turn * 10**6, (turn + 1) * 10**6)))
        tried = await asyncio.gather(*(attack.attempt(stage.server.port) for _ in range(times)))
        await asyncio.sleep(SETTLE_S)
        beside.cancel()
        await asyncio.wait((beside,))
    return Cost(
        name=attack.name,
        statuses=dict(Counter(each.status for each in tried)),
        seconds=max(each.seconds for each in tried),
        cpu_s=cpu_seconds(pid) - cpu,
        before_mib=before / MIB,
        peak_mib=peak_memory(pid) / MIB,
        after_mib=vitals_of(pid).memory / MIB,
        probes=len(probing.replies),
        probes_failed=sum(reply.code != "ok" for reply in probing.replies),
        probe_p99_ms=1000 * quantile([reply.seconds for reply in probing.replies], 0.99),
    )


def _told(statuses: dict[str, int]) -> str:
    return ", ".join(f"{times} x {status}" for status, times in statuses.items())


def _line(cost: Cost) -> str:
    return (
        f"{cost.name:32} {_told(cost.statuses):24} {cost.seconds:6.2f} s, CPU {cost.cpu_s:5.2f} s, "
        f"memory {cost.before_mib:4.0f} -> {cost.peak_mib:4.0f} -> {cost.after_mib:4.0f} MiB, "
        f"probes p99 {cost.probe_p99_ms:.0f} ms"
    )


@click.command()
@click.option("--short", is_flag=True, help="Fewer and smaller, for a busy machine.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt here.")
def main(*, short: bool, out: Path | None) -> None:
    """Send a server of our own what it must refuse. Exit code 1 if a limit is broken."""
    begun, at_first = time.monotonic(), machine()
    conclude(asyncio.run(measure(SHORT if short else Settings())), begun, at_first, out)


if __name__ == "__main__":
    main()
