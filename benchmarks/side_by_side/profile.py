"""Where this server's processor time goes: its stack, sampled under load, by part.

`python -m benchmarks.side_by_side.profile --picture profile.svg --out profile.json`, or `make bench-profile`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import takewhile
from pathlib import Path

import click

from benchmarks.reliability.load import sending
from benchmarks.side_by_side.cells import WARM_S
from benchmarks.side_by_side.requests import QUESTIONS, states
from benchmarks.side_by_side.servers import Contender, ring
from tests.gemma import diffusion_gemma_tokenizer

CLIENTS, TOKENS, SECONDS = 16, 200, 10.0
SAMPLES_A_SECOND = 250

PARTS = {
    "tokenising": ("structured_server/tokenizer/",),
    "HTTP to the engine": ("backends/vllm/connections", "backends/vllm/client"),
    "bodies and replies of the engine": ("backends/vllm/messages",),
    "canvas, noise, folding": ("structured_server/core/",),
    "request and answer": ("structured_server/wire/", "pydantic/"),
    "permits": ("structured_server/admission", "structured_server/lines"),
    "metrics": (
        "structured_server/metrics",
        "answer_metrics",
        "structured_server/histogram",
        "prometheus_client/",
    ),
    "log": ("structured_server/logs", "logging/", "request_log"),
    "driver": (
        "structured_server/driver",
        "performer",
        "jobs",
        "course",
        "sharing",
        "parallel",
        "backends/vllm/",
    ),
    "routes and middleware": ("structured_server/api/", "starlette/", "fastapi/"),
    "HTTP server": ("uvicorn/",),
    "tasks and timers": ("asyncio/", "contextlib"),
}
"""By the names of files: the innermost function of a stack that is in any of them says whose the time is."""

OTHER = "others"


def part_of(stack: str) -> str:
    """Return whose a sample is: a stack as py-spy writes it, from the outermost function on."""
    for frame in reversed(stack.split(";")):
        for part, files in PARTS.items():
            if any(file in frame for file in files) and "runners.py" not in frame:
                return part
    return OTHER


def shares_of(raw: str) -> dict[str, float]:
    """Return each part's share of the samples, the largest first."""
    counts: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        counts[part_of(stack)] += int(count)
    return {part: count / counts.total() for part, count in counts.most_common()}


async def _load(contender: Contender, reads: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    texts = takewhile(lambda _: time.monotonic() < end, states(TOKENS, f"profile {reads}"))
    asking = contender.asking(1 if reads == 1 else "auto")
    bodies = ({"state": text, "questions": QUESTIONS} | asking for text in texts)
    async with sending(contender.url, contender.path, contender.key) as sender:
        await sender.closed_loop(enumerate(bodies), CLIENTS)


def _sampled(contender: Contender, reads: int, file: Path) -> dict[str, float]:
    asyncio.run(_load(contender, reads, WARM_S))
    sampler = Path(sys.executable).parent / "py-spy"
    rate, seconds = str(SAMPLES_A_SECOND), str(int(SECONDS) - 1)
    command = [str(sampler), "record", "-r", rate, "-d", seconds, "-f", "raw", "-o", str(file)]
    sampling = subprocess.Popen([*command, "-p", str(contender.pid)], stdout=subprocess.DEVNULL)
    asyncio.run(_load(contender, reads, SECONDS))
    sampling.wait(30)
    return shares_of(file.read_text())


def draw(found: dict[int, dict[str, float]], file: Path) -> None:
    """Write an SVG with a bar for each part, for one read and for four."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams["svg.hashsalt"] = "profile"
    figure, places = pyplot.subplots(1, len(found), figsize=(9, 3.6), layout="constrained", sharex=True)
    for place, (reads, shares) in zip(places, found.items(), strict=True):
        parts = [*reversed(shares)]
        bars = place.barh(parts, [100 * shares[part] for part in parts], color="#1a73e8")
        place.bar_label(bars, [f"{100 * shares[part]:.0f} %" for part in parts], fontsize="small", padding=2)
        place.set(title=f"{reads} read{'s' * (reads > 1)}: share of processor time", xlabel="%")
        place.margins(x=0.12)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


@click.command()
@click.option("--picture", type=click.Path(path_type=Path), required=True, help="Write an SVG.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Write the shares.")
def main(picture: Path, out: Path) -> None:
    """Sample the server at 16 clients, distinct states of 200 tokens, and an engine that answers at once."""
    diffusion_gemma_tokenizer()
    with tempfile.TemporaryDirectory() as folder, ring(Path(folder)) as both:
        found = {reads: _sampled(both.ours, reads, Path(folder) / f"{reads}.txt") for reads in (1, 4)}
    for reads, shares in found.items():
        click.echo(f"{reads}: " + ", ".join(f"{part} {share:.1%}" for part, share in shares.items()))
    draw(found, picture)
    out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
