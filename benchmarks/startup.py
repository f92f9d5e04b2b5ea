"""Start-up: how soon the port answers, the longest stall while the tokenizer loads, memory, lost connections.

    python -m benchmarks.startup --starts 20 --out benchmarks/receipts/startup.json
    python -m benchmarks.startup --starts 1000 --tokenizer structured_server/data/triage

Each start is asked for /live without a pause, every time over a new connection, from the first moment until
the server itself has served for a while. Its engine does not exist.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks.reliability.verdicts import Check, Measured, at_most, conclude, machine, none_of
from benchmarks.reliability.vitals import peak_memory, vitals_of
from tests.engine.server import free_port
from tests.gemma import MADE
from tests.proxy import launch_proxy

MIB = 2**20
LIMIT_S = 60.0
SERVED_S = 0.3  # how long the server itself is asked too


@dataclass(frozen=True, slots=True)
class Start:
    """One start; times in seconds."""

    first_live: float  # from the making of the process to the first 200
    longest_wait: float  # of any later request for /live
    taken_over: float  # until the server itself answered
    asked: int
    lost: int  # connections that broke, or answers that were none
    memory: int  # resident bytes once loaded
    peak: int


def start_once(tokenizer: str, log: Path) -> Start:
    """Start a server, ask it, and end it."""
    settings = ("--upstream", f"http://127.0.0.1:{free_port()}", "--model", "none", "--tokenizer", tokenizer)
    begun = time.monotonic()
    proxy = launch_proxy(log, settings)
    first = taken_over = None
    longest, asked, lost = 0.0, 0, 0
    try:
        while taken_over is None or time.monotonic() - begun - taken_over < SERVED_S:
            sent = time.monotonic()
            try:
                _get(proxy.port, "/live")
            except (OSError, http.client.HTTPException, AssertionError):
                lost += 1
            took = time.monotonic() - sent
            asked += 1
            if first is None:
                first = time.monotonic() - begun
            else:
                longest = max(longest, took)
            # Asked seldom, as probes do: it is the other endpoint of the stand-in.
            if taken_over is None and asked % 10 == 0 and _step(proxy.port) == "engine":
                taken_over = time.monotonic() - begun
            if time.monotonic() - begun > LIMIT_S:
                raise click.ClickException(f"not started after {LIMIT_S:g} s: {log.read_text()[-500:]}")
        pid = proxy.process.pid
        memory, peak = vitals_of(pid).memory, peak_memory(pid)
    finally:
        proxy.process.kill()
        proxy.process.wait()
    assert first is not None
    return Start(first, longest, taken_over, asked, lost, memory, peak)


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
        assert path != "/live" or reply.status == 200
        return body
    finally:
        connection.close()


def _step(port: int) -> str:
    return str(json.loads(_get(port, "/ready")).get("step"))


def checks_of(starts: Sequence[Start]) -> list[Check]:
    """Hold the starts against the limits."""
    return [
        at_most("slowest first answer of /live", max(each.first_live for each in starts), 1.0, " s"),
        at_most("longest stall while it loads", 1000 * max(each.longest_wait for each in starts), 100, " ms"),
        none_of("connections lost", sum(each.lost for each in starts)),
        at_most("memory once loaded", max(each.memory for each in starts) / MIB, 400, " MiB"),
    ]


@click.command(epilog="\b\nExample:\n  python -m benchmarks.startup --starts 20")
@click.option("--starts", type=click.IntRange(1), default=10, show_default=True)
@click.option("--tokenizer", help="A folder. Default: the Gemma-size one that `make tokenizer` fetches.")
@click.option("--out", type=click.Path(path_type=Path), help="Write a receipt.")
def main(starts: int, tokenizer: str | None, out: Path | None) -> None:
    """Measure start-up."""
    begun, at_first = time.monotonic(), machine()
    if tokenizer is None:
        from tests.gemma import diffusion_gemma_tokenizer

        diffusion_gemma_tokenizer()  # makes its folder
    folder = tokenizer or str(MADE)
    with tempfile.TemporaryDirectory() as logs:
        done = [start_once(folder, Path(logs) / str(number)) for number in range(starts)]
    median = {
        name: statistics.median(getattr(each, name) for each in done)
        for name in ("first_live", "longest_wait", "taken_over", "memory", "peak")
    }
    settings = {"starts": starts, "tokenizer": Path(folder).name}
    asked = sum(each.asked for each in done)
    lines = [
        f"medians: first answer {median['first_live']:.3f} s, longest stall "
        f"{1000 * median['longest_wait']:.0f} ms, loaded after {median['taken_over']:.2f} s, "
        f"{median['memory'] / MIB:.0f} MiB (peak {median['peak'] / MIB:.0f}); {asked} connections"
    ]
    figures = {"medians": median, "asked": asked, "starts": [asdict(each) for each in done[:20]]}
    conclude(Measured("Start-up", settings, checks_of(done), figures, lines), begun, at_first, out)


if __name__ == "__main__":
    main()
