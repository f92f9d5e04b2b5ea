"""When extra reads are fired, on a simulated L4: auto, four at once, and fired early on the chance.

    python -m benchmarks.simulated_l4 --out benchmarks/receipts/simulated_l4.json

The driver, its policy and its permits are the server's own. The engine is a model of one that works in steps,
and time is virtual, so that thousands of decisions take seconds and come out the same every time.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from benchmarks.reliability.load import quantile
from benchmarks.reliability.verdicts import Check, Measured, at_most, conclude, machine
from structured_server.core.policy import ReadPolicy
from structured_server.core.reads import Read, ReadRequest
from structured_server.errors import Unavailable
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, query, sure, unsure

Way = Literal["auto", "four", "speculate", "speculate behind"]
WAYS: tuple[Way, ...] = ("auto", "four", "speculate", "speculate behind")
EXTRA = 3


@dataclass(frozen=True, slots=True)
class Card:
    """How long a step takes, from two measurements of such a card: one read 0.12 s, 1 + 3 reads 0.31 s."""

    step_s: float = 0.055
    read_s: float = 0.045  # for each read in the step
    cold_s: float = 0.020  # for each prompt that the prefix cache does not hold
    most_reads: int = 16
    way_s: float = 0.001  # of a request to the engine, and of its reply back


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured at once."""

    way: Way
    per_second: float
    warm: bool
    uncertain: float  # the share of decisions whose first read is uncertain


class SimulatedL4(FakeBackend):
    """Reads in steps: each takes all that wait when it begins, and nothing leaves it before its end.

    With `speculate`, a first read that finds the engine idle brings the extra ones along, into its own step;
    `behind` it they wait for the next step, and are taken back where they turn out not to be wanted in time.
    """

    def __init__(self, card: Card, cell: Cell) -> None:
        super().__init__(logprob=self._logprob)
        self._card, self._cell = card, cell
        self._waiting: list[tuple[ReadRequest, asyncio.Future[None]]] = []
        self._held: set[int] = set()  # prompts in the prefix cache
        self._early: dict[int, list[asyncio.Future[None]]] = {}
        self._work: asyncio.Task[None] | None = None
        self.steps_made = self.reads_made = 0

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Wait for the steps that the reads are in."""
        await asyncio.sleep(self._card.way_s)
        prompt = hash(batch[0].prompt.ids)
        early = self._early.pop(prompt, None)
        idle = self._work is None
        waits = early or [self._join(each) for each in batch]
        if idle and len(batch) == 1 and self._cell.way.startswith("speculate"):
            if self._cell.way == "speculate behind":
                await asyncio.sleep(0)  # the step with the first read has begun
            self._early[prompt] = [self._join(batch[0]) for _ in range(EXTRA)]
        await asyncio.gather(*waits)
        await asyncio.sleep(self._card.way_s)
        return [self.answer(each) for each in batch]

    def take_back(self, prompt: int) -> None:
        """Take back what was read early and is not wanted, as far as its step has not begun."""
        for wait in self._early.pop(prompt, ()):
            self._waiting = [each for each in self._waiting if each[1] is not wait]

    async def rest(self) -> None:
        """Return when nothing is left to read."""
        if self._work is not None:
            await self._work

    def _join(self, request: ReadRequest) -> asyncio.Future[None]:
        wait = asyncio.get_running_loop().create_future()
        self._waiting.append((request, wait))
        if self._work is None:
            self._work = asyncio.ensure_future(self._steps())
        return wait

    async def _steps(self) -> None:
        while self._waiting:
            step, self._waiting = (
                self._waiting[: self._card.most_reads],
                self._waiting[self._card.most_reads :],
            )
            prompts = {hash(request.prompt.ids) for request, _ in step}
            cold = 0 if self._cell.warm else len(prompts - self._held)
            self._held |= prompts
            self.steps_made += 1
            self.reads_made += len(step)
            card = self._card
            await asyncio.sleep(card.step_s + card.read_s * len(step) + card.cold_s * cold)
            for _, wait in step:
                wait.set_result(None)
        self._work = None

    def _logprob(self, request: ReadRequest, token_id: int, position: int) -> float:
        chance = random.Random(hash(request.prompt.ids)).random()
        return (unsure if chance < self._cell.uncertain else sure)(request, token_id, position)


@dataclass(frozen=True, slots=True)
class Found:
    """What a way of reading came to; times in milliseconds."""

    decisions: int
    shed: int
    p50: float
    p99: float
    reads_each: float


async def simulate(card: Card, cell: Cell, decisions: int, seed: int) -> Found:
    """Let decisions arrive at random times, and wait for all of them."""
    engine = SimulatedL4(card, cell)
    deciding = Deciding(backend=engine, max_waiting=1024)
    samples: int | Literal["auto"] = 4 if cell.way == "four" else "auto"
    chance, loop = random.Random(seed), asyncio.get_running_loop()
    took: list[float] = []
    shed = 0

    async def decide(number: int) -> None:
        nonlocal shed
        asked = replace(query(state=f"alert {number}"), policy=ReadPolicy(samples=samples), deadline_s=3600.0)
        begun = loop.time()
        try:
            outcome = await deciding.driver.decide(asked)
        except Unavailable:
            shed += 1
            return
        took.append(loop.time() - begun)
        engine.take_back(hash(outcome.decision.readings[0].job.arrangements[0].prompt.ids))

    arriving = []
    for number in range(decisions):
        await asyncio.sleep(chance.expovariate(cell.per_second))
        arriving.append(asyncio.ensure_future(decide(number)))
    await asyncio.gather(*arriving)
    await engine.rest()
    return Found(
        decisions,
        shed,
        1000 * quantile(took, 0.5),
        1000 * quantile(took, 0.99),
        engine.reads_made / len(took),
    )


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer whenever there is nothing else to do."""

    _now = 0.0

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def _run_once(self) -> None:
        ready: Sequence[object] = self._ready  # type: ignore[attr-defined]
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not ready and timers:
            self._now = max(self._now, timers[0].when())
        super()._run_once()  # type: ignore[misc]


def in_virtual_time(work: Coroutine[Any, Any, Found]) -> Found:
    """Run to the end in virtual time."""
    loop = VirtualTime()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def checks_of(found: Sequence[tuple[Cell, Found]]) -> list[Check]:
    """Say whether speculation wins: only then would it be worth its code."""

    def p50(way: Way, per_second: float) -> float:
        return next(f.p50 for c, f in found if (c.way, c.per_second, c.warm) == (way, per_second, False))

    slowest = min(cell.per_second for cell, _ in found)
    return [
        at_most("one read alone, auto", p50("auto", slowest), 125, " ms"),
        at_most("auto's p50 over speculation's, idle", p50("auto", slowest) / p50("speculate", slowest), 1.0),
    ]


@click.command(epilog="\b\nExample:\n  python -m benchmarks.simulated_l4 --decisions 2000")
@click.option("--decisions", type=click.IntRange(10), default=2000, show_default=True, help="In each cell.")
@click.option("--uncertain", type=float, default=0.3, show_default=True, help="The share of such decisions.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a receipt.")
def main(decisions: int, uncertain: float, seed: int, out: Path | None) -> None:
    """Compare the ways of reading under load."""
    begun, at_first, card = time.monotonic(), machine(), Card()
    found = []
    lines = ["                     per second:" + "".join(f"{rate:>15g}" for rate in RATES), ""]
    for warm in (False, True):
        for way in WAYS:
            cells = [Cell(way, rate, warm, uncertain) for rate in RATES]
            row = [(cell, in_virtual_time(simulate(card, cell, decisions, seed))) for cell in cells]
            found += row
            name = f"{way}, {'warm' if warm else 'cold'}"
            lines.append(f"{name:<32}" + "".join(f"{f.p50:>7.0f} /{f.p99:>6.0f}" for _, f in row))
    figures = {"cells": [{**asdict(cell), **asdict(f)} for cell, f in found]}
    settings = {"card": asdict(card), "decisions": decisions, "uncertain": uncertain, "seed": seed}
    conclude(
        Measured("A simulated L4: p50 / p99 in ms", settings, checks_of(found), figures, lines),
        begun,
        at_first,
        out,
    )


RATES = (0.5, 2.0, 4.0, 6.0, 8.0)


if __name__ == "__main__":
    main()
