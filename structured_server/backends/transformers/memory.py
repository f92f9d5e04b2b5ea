"""How much memory a model may take: what the system, its container or the GPU has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_memory(torch: Any, device: Any) -> int | None:
    """Return the bytes that are free on a torch device, None where the system does not tell."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what an attempt that failed has left behind is free too
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    return free_ram() if device.type == "cpu" else None


def free_ram(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Return the bytes that this machine, or the container that it runs in, has left; None off Linux."""
    found = [free for free in (_left_in_machine(meminfo), _left_in_container(cgroup)) if free is not None]
    return min(found, default=None)


def _left_in_machine(meminfo: Path) -> int | None:
    kilobytes = _fields(meminfo).get("MemAvailable:")
    return None if kilobytes is None else 1024 * kilobytes


def _left_in_container(cgroup: Path) -> int | None:
    """Return the limit less what is used, where cached files count as free: they give way."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or one without a limit, which reads "max"
        return None
    return max(0, limit - used + _fields(cgroup / "memory.stat").get("inactive_file", 0))


def _fields(path: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdecimal()}
