"""What a run shows while it goes on."""

from __future__ import annotations

import io

import pytest

from structured_server.bulk import progress
from structured_server.bulk.progress import duration, showing


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, rows: int, *, quiet: bool = False) -> str:
    """Go from the third of ten rows on, and return what was shown."""
    with showing(stream, 10, 3, quiet=quiet) as advance:
        for _ in range(rows):
            advance()
    return stream.getvalue()


def test_a_terminal_gets_a_bar_with_rate() -> None:
    said = shown(Terminal(), 7)
    assert "10/10" in said
    assert "rows/s" in said


def test_elsewhere_there_are_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "" == shown(io.StringIO(), 7), "less than ten seconds"
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    *_, last = shown(io.StringIO(), 7).splitlines()
    assert last.startswith("10 of 10 rows, ")
    assert last.endswith(" rows/s, 0 s left")


def test_quiet_shows_nothing_even_on_a_terminal() -> None:
    assert "" == shown(Terminal(), 7, quiet=True)


@pytest.mark.parametrize(("seconds", "said"), [(3.2, "3 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")])
def test_times_are_for_people(seconds: float, said: str) -> None:
    assert said == duration(seconds)
