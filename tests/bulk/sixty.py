"""Sixty rows, one question, and the command that asks it of a server."""

from __future__ import annotations

from pathlib import Path

from tests.bulk.labelling import read_csv

ROWS = [{"id": str(number), "text": f"text {number:03}"} for number in range(60)]
QUESTION = {"team": {"type": "choice", "criteria": {"a": None, "b": None}}}

Files = tuple[Path, Path, Path]
"""An input, an output and questions."""


def command(files: Files, url: str, *more: object) -> tuple[object, ...]:
    """Return the command's arguments."""
    source, out, questions = files
    return (source, "-o", out, "-q", questions, "-u", url, *more)


def complete(out: Path) -> bool:
    """Return whether all rows have an answer, in order."""
    found = read_csv(out)
    return [row["id"] for row in ROWS] == [each["id"] for each in found] and all(
        (each["_status"], each["team"]) == ("decided", "a") for each in found
    )
