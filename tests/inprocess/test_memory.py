"""Free memory: the least of what the machine and the container leave, or what the GPU does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from structured_server.backends.transformers.memory import free_memory, free_ram

MIB = 2**20


@pytest.fixture
def system(tmp_path: Path) -> tuple[Path, Path]:
    """A machine with 100 MiB available, and a container with 50 of 80 MiB in use, 10 of them cached files."""
    (tmp_path / "meminfo").write_text("MemTotal: 204800 kB\nMemAvailable:  102400 kB\nHugePages_Total: 0\n")
    (tmp_path / "memory.max").write_text(f"{80 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{50 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {40 * MIB}\ninactive_file {10 * MIB}\n")
    return tmp_path / "meminfo", tmp_path


def test_the_containers_limit_counts_where_it_leaves_less(system: tuple[Path, Path]) -> None:
    assert 40 * MIB == free_ram(*system)


@pytest.mark.parametrize("limit", ["max", str(10**12)], ids=["no limit", "a wide limit"])
def test_the_machine_counts_where_the_container_leaves_more(system: tuple[Path, Path], limit: str) -> None:
    (system[1] / "memory.max").write_text(limit)
    assert 100 * MIB == free_ram(*system)


def test_a_system_that_tells_nothing_is_not_guessed_at(tmp_path: Path) -> None:
    assert free_ram(tmp_path / "meminfo", tmp_path) is None


def test_a_gpu_is_asked_for_its_own_after_what_is_unused_was_given_back() -> None:
    asked: list[str] = []

    def mem_get_info(device: SimpleNamespace) -> tuple[int, int]:
        asked.append(f"info on {device.type}")
        return 7, 9

    cuda = SimpleNamespace(empty_cache=lambda: asked.append("empty"), mem_get_info=mem_get_info)
    assert 7 == free_memory(SimpleNamespace(cuda=cuda), SimpleNamespace(type="cuda"))
    assert ["empty", "info on cuda"] == asked
