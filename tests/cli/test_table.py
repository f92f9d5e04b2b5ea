"""Answers as a table: nothing of them is cut off, however narrow the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from structured_server.cli.table import print_answers

NOISE = {"draws": 4, "agreement": 1.0, "standard_error": 0.018, "interval_95": [0.4, 0.5]}


def answer(**probabilities: float) -> dict[str, Any]:
    word = max(probabilities, key=probabilities.__getitem__)
    said = {"type": "choice", "status": "decided", "answer": word, "choice": word}
    return {**said, "probabilities": probabilities, "noise": NOISE}


WARNING = "Something that everybody should know before they act on it at all."
REPLY = {
    "answers": {
        "team": answer(networking=0.997, compute=0.003),
        "likely_cause": answer(configuration=0.6, capacity=0.4),
    },
    "reading": {"reads": 4, "extended": False, "extended_by": []},
    "timings_ms": {"total": 311.2},
    "warnings": [
        {"code": "x", "message": "Something that everybody should know before they act on it at all."}
    ],
}


def printed(width: int, *, terminal: bool = True) -> str:
    out = io.StringIO()
    print_answers(
        REPLY, Console(file=out, width=width, force_terminal=terminal, highlight=False, no_color=True)
    )
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_word_and_number_is_whole(width: int) -> None:
    text = printed(width, terminal=False)
    for said in ("team", "likely_cause", "networking", "configuration", "0.997", "0.600", "±0.018 over 4"):
        assert said in " ".join(text.split()), text
    assert "…" not in text
    table = [line for line in text.splitlines() if "█" in line or "▏" in line]
    assert all(len(line) <= width for line in table)


def test_a_narrow_terminal_has_shorter_bars_and_breaks_words_before_it_cuts_them() -> None:
    assert printed(60).count("█") < printed(120).count("█")
    letters = "".join(printed(36, terminal=False).split())
    assert "…" not in letters
    assert "0.997" in letters


def test_warnings_are_broken_into_lines_for_people_and_left_whole_for_programs() -> None:
    assert WARNING in printed(60, terminal=False)
    assert WARNING not in printed(60)
    assert WARNING in " ".join(printed(60).replace("\x1b[2m", "").replace("\x1b[0m", "").split())
