"""A run that is killed three times ends with what an uninterrupted one has, each row once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.bulk.labelling import batch, incidents, manifest_of, read_csv, start_batch, write_csv

ROWS = 300
KILLS_AT = (40, 130, 220)
ENTRY = 32


def written(output: Path) -> int:
    """Return how many rows the journal beside an output has."""
    journal = output.with_name(output.name + ".progress")
    return journal.stat().st_size // ENTRY if journal.exists() else 0


def test_three_kills_lose_no_row_and_double_none(embedded_url: str, questions: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", incidents(ROWS))
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    command = (source, "-o", out, "-q", questions, "-u", embedded_url, "--concurrency", 2)
    for kill_at in KILLS_AT:
        process = start_batch(*command)
        end = time.monotonic() + 120
        while written(out) < kill_at:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert -signal.SIGKILL == process.returncode
        assert kill_at <= written(out) < ROWS
        with out.open("ab") as file:
            file.write(b"INC-9,a torn li")  # as a kill in the middle of a write leaves it
    resumed = batch(*command)
    assert 0 == resumed.exit_code, resumed.output
    assert "Going on after " in resumed.output
    found = read_csv(out)
    assert [row["id"] for row in incidents(ROWS)] == [each["id"] for each in found]
    assert ROWS == manifest_of(out)["counts"]["rows"]
    assert 0 == batch(source, "-o", whole, *command[3:]).exit_code
    assert whole.read_bytes() == out.read_bytes()


def test_a_second_run_is_told_who_writes(embedded_url: str, questions: Path, tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "in.csv", incidents(ROWS)), tmp_path / "out.csv"
    command = (source, "-o", out, "-q", questions, "-u", embedded_url, "--concurrency", 1)
    process = start_batch(*command)
    end = time.monotonic() + 60
    while not written(out):
        assert time.monotonic() < end
        time.sleep(0.005)
    second = batch(*command)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert 4 == second.exit_code
    assert f"is being written by process {process.pid} since" in second.output
    assert 0 == batch(*command, "--limit", 1).exit_code, "the lock of one that was killed holds nobody up"
