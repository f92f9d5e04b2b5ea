"""Vital signs of a server process: memory, descriptors and connections from /proc, the rest from /metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

PREFIX = "structured_server_"
KIB = 1024


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a process holds at a moment."""

    at: float  # seconds on the monotonic clock
    memory: int  # resident bytes
    descriptors: int
    connections: int  # descriptors that are sockets
    threads: int
    tasks: int | None  # of asyncio; None where the server was not asked


def vitals_of(pid: int, metrics: Mapping[str, float] | None = None) -> Vitals:
    """Look at a process, and at what it says in its metrics."""
    held = [_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return Vitals(
        at=time.monotonic(),
        memory=_status(pid, "VmRSS") * KIB,
        descriptors=len(held),
        connections=sum(target.startswith("socket:") for target in held),
        threads=_status(pid, "Threads"),
        tasks=None if metrics is None else int(metrics[PREFIX + "tasks"]),
    )


def peak_memory(pid: int) -> int:
    """Return the most resident bytes since the process started, or since `forget_peak`."""
    return _status(pid, "VmHWM") * KIB


def forget_peak(pid: int) -> None:
    """Begin anew to look for the most resident bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its own and the system's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def metrics_of(url: str) -> dict[str, float]:
    """Return a server's metrics, those with labels added up over all of them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(f"/proc/{pid}/status has no {name}")


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:  # closed meanwhile
        return ""
