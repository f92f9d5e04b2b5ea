"""Bulk labelling: three kills lose no row and double none, and memory does not grow with the file.

    python -m benchmarks.bulk --rows 10000 --out benchmarks/receipts/bulk.json

The server is one of its own with the embedded model, on loopback. The file is labelled once without a break,
with the client's memory watched, and once with kills and torn lines. Both outputs must be the same bytes.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import yaml

from benchmarks.reliability.processes import ROOT, launch
from benchmarks.reliability.verdicts import Measured, at_least, at_most, conclude, machine, none_of
from benchmarks.reliability.vitals import vitals_of

EXAMPLE = ROOT / "examples" / "incident_triage"
KILLS = 3
ENTRY = 32  # bytes of the journal for each row
GROWTH = 1.1
MIB = 2**20
STALLED_S = 120.0


@dataclass(frozen=True, slots=True)
class Watched:
    """A run to its end: resident bytes at a tenth of the rows and at the last look, and rows a second."""

    early: int
    late: int
    rate: float


class Stalled(Exception):
    """A run came no further, or ended with an error; the message has what it said."""


def write_input(path: Path, rows: int) -> None:
    """Write incidents that all differ."""
    incidents = yaml.safe_load((EXAMPLE / "incidents.yaml").read_text("utf-8"))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        for number in range(rows):
            incident = incidents[number % len(incidents)]
            writer.writerow([f"INC-{number}", f"{incident['title']}\nreport {number}: {incident['text']}"])


@dataclass(frozen=True, slots=True)
class Labelling:
    """The command with its files."""

    source: Path
    output: Path
    url: str
    concurrency: int

    @property
    def written(self) -> int:
        """Rows that the journal has."""
        journal = self.output.with_name(self.output.name + ".progress")
        return journal.stat().st_size // ENTRY if journal.exists() else 0

    def start(self) -> subprocess.Popen[str]:
        """Start it."""
        options = ["-o", str(self.output), "-q", str(EXAMPLE / "questions.yaml"), "-u", self.url]
        options += ["--concurrency", str(self.concurrency), "--summary", "json", "--quiet"]
        return subprocess.Popen(
            [sys.executable, "-m", "structured_server", "batch", str(self.source), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )

    def watch(self, rows: int) -> Watched:
        """Run it to its end and look at its memory.

        Raises:
            Stalled: it failed.
        """
        process = self.start()
        begun = time.monotonic()
        early = late = 0
        while process.poll() is None and (done := self.written) < rows:
            memory = vitals_of(process.pid).memory
            late = memory
            if done >= rows // 10 and not early:
                early = memory
            time.sleep(0.02)
        self.finish(process)
        return Watched(early, late, rows / (time.monotonic() - begun))

    def kill_at(self, row: int) -> int:
        """Run it until that row is written and kill it, with a torn line behind; return how many were.

        Raises:
            Stalled: it came no further.
        """
        process = self.start()
        end = time.monotonic() + STALLED_S
        while self.written < row:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise Stalled(f"at {self.written} of {row} rows: {process.communicate()[0]}")
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        with self.output.open("ab") as file:
            file.write(b'INC-0,"torn')
        return self.written

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Wait for its end.

        Raises:
            Stalled: it failed.
        """
        said, _ = process.communicate()
        if process.returncode not in (0, 3):
            raise Stalled(f"ended with {process.returncode}: {said}")


def ids_of(output: Path) -> list[str]:
    """Return the ids of an output's rows."""
    with output.open(encoding="utf-8", newline="") as file:
        return [row["id"] for row in csv.DictReader(file)]


def measure(folder: Path, rows: int, concurrency: int) -> tuple[Watched, Sequence[int], list[str], bool]:
    """Label without and with kills; return what was watched, where it was killed, ids, whether all equals."""
    server = launch(folder / "log", ["--backend", "embedded", "--allow-demo-model"])
    try:
        server.wait_until_ready()
        source = folder / "in.csv"
        write_input(source, rows)
        whole = Labelling(source, folder / "whole.csv", server.url, concurrency)
        watched = whole.watch(rows)
        broken = Labelling(source, folder / "broken.csv", server.url, concurrency)
        killed = [broken.kill_at((number + 1) * rows // (KILLS + 1)) for number in range(KILLS)]
        broken.finish(broken.start())
        equal = whole.output.read_bytes() == broken.output.read_bytes()
        return watched, killed, ids_of(broken.output), equal
    finally:
        server.stop()


@click.command(epilog="\b\nExample:\n  python -m benchmarks.bulk --rows 1000")
@click.option("--rows", type=click.IntRange(100), default=10_000, show_default=True)
@click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a receipt.")
def main(rows: int, concurrency: int, out: Path | None) -> None:
    """Measure bulk labelling under kills."""
    begun, at_first = time.monotonic(), machine()
    with tempfile.TemporaryDirectory() as folder:
        try:
            watched, killed, ids, equal = measure(Path(folder), rows, concurrency)
        except Stalled as error:
            raise click.ClickException(str(error)) from None
    wanted = [f"INC-{number}" for number in range(rows)]
    figures = {
        "rows": rows,
        "killed_at": list(killed),
        "rows_per_second": watched.rate,
        "memory_at_a_tenth": watched.early,
        "memory_at_the_end": watched.late,
    }
    checks = [
        none_of("rows lost", len(set(wanted) - set(ids))),
        none_of("rows twice", len(ids) - len(set(ids))),
        none_of("rows out of order", sum(one != other for one, other in zip(wanted, ids, strict=False))),
        none_of("outputs that differ", int(not equal)),
        at_least("kills before the end", sum(0 < at < rows for at in killed), KILLS),
        at_most("memory at the end over a tenth", watched.late / max(watched.early, 1), GROWTH),
    ]
    settings = {"rows": rows, "kills": KILLS, "concurrency": concurrency}
    lines = [
        f"{watched.rate:.0f} rows/s; {watched.early / MIB:.1f} MiB at a tenth, "
        f"{watched.late / MIB:.1f} MiB at the end"
    ]
    click.echo(json.dumps(figures))
    conclude(Measured("Bulk labelling", settings, checks, figures, lines), begun, at_first, out)


if __name__ == "__main__":
    main()
