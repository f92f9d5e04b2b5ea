"""The gate: what a decision costs here, held against vLLM's example server, which the same machine runs.

Processor times are compared within one run and in turn, so that a busy machine meets both alike.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.side_by_side.__main__ import checks_of
from benchmarks.side_by_side.cells import Cell, Figures, Outcome, measure
from benchmarks.side_by_side.profile import part_of, shares_of
from benchmarks.side_by_side.servers import EXAMPLE, ring
from tests.engine.server import require_engine

GATE = {1: 1.8, 4: 2.5}
"""By reads: the example's processor time over ours must be no less. docs/performance.md has what it is.

Where all processors are busy with other things the ratios are lower by more than a third.
"""

ATTEMPTS = 3


def ratio(folder: Path, reads: int, launcher: Sequence[str] = ("-m", "structured_server")) -> float:
    with ring(folder, launcher) as both:
        cell = Cell(200, reads, 16, 0)
        return asyncio.run(measure(both, cell, rounds=3, seconds=1.0, seed=1)).ratio


@pytest.fixture
def example() -> None:
    """Skip where vLLM's example server, or what it needs, is absent; fail in CI."""
    require_engine()
    if not EXAMPLE.exists():
        reason = "vLLM's example server is absent: make reference"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("gemma", "example")
@pytest.mark.parametrize("reads", GATE)
def test_a_decision_costs_a_fraction_of_what_the_example_takes(reads: int, tmp_path: Path) -> None:
    found: list[float] = []
    while len(found) < ATTEMPTS and max(found, default=0.0) < GATE[reads]:
        found.append(ratio(tmp_path, reads))
    assert max(found) >= GATE[reads], f"{found} times; see `make bench` and docs/performance.md"


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("gemma", "example")
def test_the_gate_notices_a_slow_down(tmp_path: Path) -> None:
    assert ratio(tmp_path, 1, ("-m", "tests.benchmarks.slowed")) < GATE[1]


def outcome(cell: Cell, cpu_us: float, p50: float, errors: int = 0) -> Outcome:
    ours = Figures(1000, errors, cell.reads, cpu_us, p50, p50, 2 * p50, 100.0)
    return Outcome(cell, ours, Figures(1000, 0, cell.reads, 2000.0, 2.0, 2.0, 4.0, 100.0), 0.3)


def test_every_limit_can_be_broken() -> None:
    cells = [Cell(200, 1, 16, 0), Cell(200, 4, 16, 0), Cell(200, 1, 1, 0)]
    assert all(check.holds for check in checks_of([outcome(cell, 300.0, 1.0) for cell in cells]))
    broken = [outcome(cell, 1000.0, 3.0, errors=1) for cell in cells]
    assert not any(check.holds for check in checks_of(broken))


def test_a_sample_is_of_the_innermost_part() -> None:
    way = ("serve (uvicorn/server.py)", "decide (structured_server/driver.py)")
    stack = ";".join((*way, "encode (structured_server/tokenizer/words.py)"))
    assert "tokenising" == part_of(stack)
    assert "others" == part_of("main (x.py)")
    assert {"tokenising": 0.75, "HTTP server": 0.25} == shares_of(f"{stack} 3\nserve (uvicorn/server.py) 1")
