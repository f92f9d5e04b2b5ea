"""The short form of `make bench-startup`, for a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.startup import MIB, Start, checks_of, start_once
from tests.gemma import MADE


@pytest.mark.usefixtures("gemma")
def test_the_port_answers_at_once_and_nothing_is_lost_while_a_large_tokenizer_loads(tmp_path: Path) -> None:
    start = start_once(str(MADE), tmp_path / "log")
    assert 100 < start.asked
    assert 0 == start.lost
    assert start.first_live < 1
    assert start.longest_wait < 1, "0.1 on a machine with nothing else to do"
    assert start.memory < 400 * MIB


def test_each_limit_can_be_broken() -> None:
    good = Start(0.1, 0.05, 3.0, 1000, 0, 200 * MIB, 300 * MIB)
    assert all(check.holds for check in checks_of([good]))
    bad = Start(1.1, 0.15, 3.0, 1000, 1, 500 * MIB, 600 * MIB)
    assert not any(check.holds for check in checks_of([good, bad]))
