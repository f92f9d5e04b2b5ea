"""The cells of the comparison: so many clients, tokens, reads, and such an engine; each server in turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from benchmarks.reliability.load import Reply, quantile, sending
from benchmarks.reliability.vitals import cpu_seconds
from benchmarks.side_by_side.requests import QUESTIONS, states
from benchmarks.side_by_side.servers import Body, Contender, Ring

WARM_S = 0.3
MANY = 64  # clients, with whom each round takes the example a minute
MOST_WARMING = 4  # clients: with many, the example leaves some waiting for half a minute


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured at once. `reads` 4 are one, and three more because it is uncertain."""

    tokens: int
    reads: int
    clients: int
    delay_ms: int

    @property
    def samples(self) -> str | int:
        """What a request asks for."""
        return 1 if self.reads == 1 else "auto"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one server did in one cell. Times are milliseconds, processor time is that of its process."""

    decisions: int
    errors: int
    reads_each: float
    cpu_us: float  # for each decision
    mean: float
    p50: float
    p99: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both servers in one cell: the medians of all rounds. `upstream` is the p50 of a read by itself."""

    cell: Cell
    ours: Figures
    example: Figures
    upstream: float

    @property
    def ratio(self) -> float:
        """How many times ours the example's processor time is."""
        return self.example.cpu_us / self.ours.cpu_us

    @property
    def added(self) -> tuple[float, float]:
        """What each adds to the time of the reads, which follow one another where there are four."""
        reads = self.upstream * (1 if self.cell.reads == 1 else 2)
        return self.ours.p50 - reads, self.example.p50 - reads


def matrix(
    tokens: Sequence[int] = (200, 1500),
    reads: Sequence[int] = (1, 4),
    clients: Sequence[int] = (1, 16, 64),
    delays_ms: Sequence[int] = (0, 10, 50),
) -> list[Cell]:
    """Return every combination."""
    return [Cell(*each) for each in itertools.product(tokens, reads, clients, delays_ms)]


async def measure(ring: Ring, cell: Cell, *, rounds: int, seconds: float, seed: int) -> Outcome:
    """Measure both servers in one cell, in turn, so that what else the machine does meets both."""
    ring.engine.set_faults(delay_s=cell.delay_ms / 1000)
    found: dict[str, list[Figures]] = {each.name: [] for each in ring.both}
    upstream = []
    for number in range(rounds if cell.clients < MANY else 1):
        for contender in ring.both if number % 2 == 0 else reversed(ring.both):
            texts = states(cell.tokens, f"{seed} {cell} {number} {contender.name}")
            found[contender.name].append(await _round(ring, contender, cell, texts, seconds))
        alone = await read_by_itself(ring.engine.url, cell.tokens, cell.clients)
        upstream.append(1000 * quantile([reply.seconds for reply in alone], 0.5))
    ours, example = (_medians(found[each.name]) for each in ring.both)
    return Outcome(cell, ours, example, median(upstream))


async def _round(
    ring: Ring, contender: Contender, cell: Cell, texts: Iterator[str], seconds: float
) -> Figures:
    asking = contender.asking(cell.samples)
    bodies: Iterator[Body] = ({"state": text, "questions": QUESTIONS} | asking for text in texts)
    async with sending(contender.url, contender.path, contender.key) as sender:
        await _for(sender.closed_loop, bodies, min(cell.clients, MOST_WARMING), WARM_S)
        reads, cpu = ring.engine.tally()["reads"], cpu_seconds(contender.pid)
        begun = time.monotonic()
        replies = await _for(sender.closed_loop, bodies, cell.clients, seconds)
        took = time.monotonic() - begun
        cpu = cpu_seconds(contender.pid) - cpu
    return _figures(replies, ring.engine.tally()["reads"] - reads, cpu, took)


async def _for(loop: Any, bodies: Iterator[Body], clients: int, seconds: float) -> list[Reply]:
    """Send for so long: nothing new after it."""
    end = time.monotonic() + seconds
    during = itertools.takewhile(lambda _: time.monotonic() < end, bodies)
    replies: list[Reply] = await loop(enumerate(during), clients)
    return replies


def _figures(replies: Sequence[Reply], reads: int, cpu: float, took: float) -> Figures:
    times = [reply.seconds for reply in replies]
    return Figures(
        decisions=len(replies),
        errors=sum(reply.status != 200 for reply in replies),
        reads_each=reads / len(replies),
        cpu_us=1e6 * cpu / len(replies),
        mean=1000 * fmean(times),
        p50=1000 * quantile(times, 0.5),
        p99=1000 * quantile(times, 0.99),
        per_second=len(replies) / took,
    )


def _medians(rounds: Sequence[Figures]) -> Figures:
    columns = {name: [asdict(each)[name] for each in rounds] for name in asdict(rounds[0])}
    errors, decisions = sum(columns.pop("errors")), sum(columns.pop("decisions"))
    return Figures(decisions, errors, **{name: median(values) for name, values in columns.items()})


async def read_by_itself(engine: str, tokens: int, at_once: int) -> list[Reply]:
    """Return what a read as ours sends it takes the engine, sent to it by so many at a time."""
    body: Body = {
        "model": "fake",
        "prompt": list(range(1000, 1000 + tokens)),
        "max_tokens": 20,
        "logprobs": 1,
        "logprob_token_ids": list(range(2000, 2022)),
        "vllm_xargs": {"diffusion_seed_canvas": [7] * 32, "diffusion_canvas_length": 32},
    }
    async with sending(engine, "/v1/completions") as sender:
        return await sender.closed_loop(((n, body) for n in range(40 * at_once)), at_once)
