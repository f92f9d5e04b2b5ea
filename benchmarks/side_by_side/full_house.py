"""Throughput with many clients: as much as the engine and the permits allow, and no errors."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.reliability.load import Reply, sending
from benchmarks.reliability.processes import EngineProcess, launch
from benchmarks.reliability.verdicts import Check, at_least, none_of
from benchmarks.side_by_side.cells import read_by_itself
from benchmarks.side_by_side.requests import QUESTIONS, states
from tests.gemma import MADE

CLIENTS, DELAY_S, PERMITS, SECONDS = 64, 0.05, 16, 6.0
SHARE = 0.95


@dataclass(frozen=True, slots=True)
class FullHouse:
    """What came of it."""

    decisions: int
    per_second: float
    allowed: float
    checks: list[Check] = field(default_factory=list)


async def full_house() -> FullHouse:
    """Start a server with its own default of permits, and keep more clients busy than it has permits."""
    engine = EngineProcess(("--steady",), MADE)
    engine.start()
    try:
        with TemporaryDirectory() as folder:
            settings = ["--upstream", engine.url, "--model", "fake", "--tokenizer", str(MADE)]
            server = launch(Path(folder) / "log", settings)
            try:
                server.wait_until(lambda said: said["ready"])
                await asyncio.sleep(2)  # the narrower widths warm up behind readiness
                await asyncio.to_thread(engine.set_faults, delay_s=DELAY_S)
                reads = await read_by_itself(engine.url, 200, PERMITS)
                replies, took = await _load(server.url)
            finally:
                server.stop()
    finally:
        engine.kill()
    rate, allowed = len(replies) / took, PERMITS / fmean(reply.seconds for reply in reads)
    checks = [
        none_of("errors with a full house", sum(reply.status != 200 for reply in replies)),
        at_least("decisions a second with a full house", rate, SHARE * allowed),
    ]
    return FullHouse(len(replies), rate, allowed, checks)


async def _load(url: str) -> tuple[list[Reply], float]:
    begun = time.monotonic()
    texts = takewhile(lambda _: time.monotonic() < begun + SECONDS, states(200, "full house"))
    bodies = ({"state": text, "questions": QUESTIONS, "read": {"samples": 1}} for text in texts)
    async with sending(url) as sender:
        replies = await sender.closed_loop(enumerate(bodies), CLIENTS)
    return replies, time.monotonic() - begun
