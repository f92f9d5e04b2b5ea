"""What a measurement comes to: figures held against limits, a table, and a receipt to keep."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

LIBRARIES = ("structured-server", "uvicorn", "uvloop", "httptools", "aiohttp", "tokenizers")


@dataclass(frozen=True, slots=True)
class Check:
    """One figure and what it is held against."""

    name: str
    found: str
    wanted: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement: what was set, what was found, what was held against limits, and lines to show."""

    name: str
    settings: Mapping[str, Any]
    checks: Sequence[Check]
    figures: Mapping[str, Any]
    lines: Sequence[str] = ()
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)


def none_of(name: str, count: int) -> Check:
    """Hold a count against 0."""
    return Check(name, str(count), "0", count == 0)


def at_most(name: str, value: float, limit: float, unit: str = "") -> Check:
    """Hold a figure against an upper limit; what is no number does not hold."""
    return Check(name, f"{value:.4g}{unit}", f"<= {limit:.4g}{unit}", value <= limit)


def at_least(name: str, value: float, limit: float, unit: str = "") -> Check:
    """Hold a figure against a lower limit; what is no number does not hold."""
    return Check(name, f"{value:.4g}{unit}", f">= {limit:.4g}{unit}", value >= limit)


def machine() -> dict[str, Any]:
    """Describe the machine, and how busy it is."""
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "cpu": ", ".join(sorted(models)),
        "load_average": os.getloadavg()[0],
    }


def show(measured: Measured) -> None:
    """Print the lines and the table."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    for line in measured.lines:
        console.print(line, markup=False, highlight=False)
    table = Table(title=measured.name, title_justify="left")
    for column in ("", "found", "wanted", ""):
        table.add_column(column)
    for check in measured.checks:
        table.add_row(check.name, check.found, check.wanted, "holds" if check.holds else "BROKEN")
    console.print(table)


def conclude(measured: Measured, begun: float, at_first: Mapping[str, Any], out: Path | None) -> None:
    """Show a measurement, write its receipt, and exit with 1 if a check does not hold.

    `begun` is the monotonic clock at its beginning, `at_first` the machine then.
    """
    show(measured)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        receipt = {
            **asdict(measured),
            "holds": measured.holds,
            "seconds": round(time.monotonic() - begun, 1),
            "machine": at_first,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        }
        out.write_text(json.dumps(receipt, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(0 if measured.holds else 1)
