"""How far a run is: a bar on a terminal, a line now and then elsewhere, both on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

LINE_EVERY_S = 10.0

Advance = Callable[[], None]


@contextmanager
def showing(stream: TextIO, total: int, done: int, *, quiet: bool) -> Iterator[Advance]:
    """Show a run that begins with `done` of `total` rows; call what is given for each more."""
    if quiet:
        yield lambda: None
    elif stream.isatty():
        yield from _bar(stream, total, done)
    else:
        yield _Plain(stream, total, done).advance


def _bar(stream: TextIO, total: int, done: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream)) as progress:
        task = progress.add_task("", total=total, completed=done, rate="")
        rate = Rate()

        def advance() -> None:
            progress.update(task, advance=1, rate=f"{rate.count():.1f} rows/s")

        yield advance


class Rate:
    """Rows a second since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._rows = 0

    def count(self) -> float:
        """Take note of a row, and return the rate."""
        self._rows += 1
        return self._rows / max(time.monotonic() - self._begun, 1e-3)


class _Plain:
    def __init__(self, stream: TextIO, total: int, done: int) -> None:
        self._stream, self._total, self._done = stream, total, done
        self._rate = Rate()
        self._next = time.monotonic() + LINE_EVERY_S

    def advance(self) -> None:
        self._done += 1
        rate = self._rate.count()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_S
            left = duration((self._total - self._done) / rate)
            self._stream.write(f"{self._done} of {self._total} rows, {rate:.1f} rows/s, {left} left\n")
            self._stream.flush()


def duration(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
