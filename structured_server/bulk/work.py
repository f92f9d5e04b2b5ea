"""Labelling a file: what of the output is there already, the run over the rest, what all of it comes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import TextIO

from structured_server.bulk.asker import Asker
from structured_server.bulk.calling import Caller
from structured_server.bulk.earlier import Earlier
from structured_server.bulk.errors import BadInput, Changed
from structured_server.bulk.files import Pair, Places
from structured_server.bulk.flat import FAILED
from structured_server.bulk.manifest import Manifest
from structured_server.bulk.output import Output, entries
from structured_server.bulk.pace import Pace
from structured_server.bulk.progress import showing
from structured_server.bulk.rows import Row, Source
from structured_server.bulk.run import Done, Job, Run
from structured_server.bulk.tally import Tally

WINDOW = 4
"""Rows that are under way or wait for one before them, as a multiple of those that may be asked at once."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How rows are asked. Times in seconds."""

    asker: Callable[[], AbstractAsyncContextManager[Asker]]
    concurrency: int
    patience: float


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where is said how it goes."""

    stream: TextIO
    quiet: bool

    def say(self, text: str) -> None:
        """Print a line, unless all shall be quiet."""
        if not self.quiet:
            self.stream.write(f"{text}\n")
            self.stream.flush()


@dataclass(frozen=True, slots=True)
class Work:
    """A file to label. `total` is how many of its rows."""

    source: Source
    total: int
    job: Job
    places: Places
    manifest: Manifest
    tally: Tally
    overwrite: bool = False
    retry_errors: bool = False

    def label(self, asking: Asking, reporting: Reporting) -> bool:
        """Ask and write all rows that are not in the output yet; return whether there were any.

        Raises:
            BulkError: it could not be begun, or not be finished; what is written is whole.
        """
        with self.places.locked():
            manifest, fresh = self._continued()
            output: Output | None = None
            try:
                with ExitStack() as stack:
                    target, earlier = self._target(manifest, stack)
                    output = stack.enter_context(Output(target, self.job.lines.header))
                    rows = islice(self.source.rows(), self.total)
                    self._recount(output, rows)
                    left = max(0, self.total - output.done)
                    if left:
                        manifest = self._run(output, rows, earlier, manifest, asking, reporting)
            except BaseException:
                if fresh and (output is None or not output.done):
                    self.places.remove_all()
                raise
            if target == self.places.next:
                self.places.promote()
            replace(manifest, counts=self.tally.counts, finished=True).save(self.places.manifest)
            return bool(left)

    def _continued(self) -> tuple[Manifest, bool]:
        """Return the manifest that this run goes on with, and whether it begins anew.

        Raises:
            BulkError: what is there is not this run's.
        """
        if self.overwrite:
            return self._anew()
        self.places.recover()
        found = Manifest.load(self.places.manifest)
        output = self.places.output
        if not output.exists():
            return self._anew()
        if found is None:
            if output.stat().st_size:
                raise BadInput(
                    f"{output} exists and has no manifest beside it. Write to another file, or over it with "
                    "--overwrite."
                )
            return self._anew()
        manifest = found.continued(self.manifest, output, allow_mixed=self.job.allow_mixed)
        if found.input["digest"] != manifest.input["digest"]:
            self.places.next.remove()
        return manifest, False

    def _anew(self) -> tuple[Manifest, bool]:
        self.places.remove_all()
        self.manifest.save(self.places.manifest)  # first: an output without one is taken for somebody else's
        return self.manifest, True

    def _target(self, manifest: Manifest, stack: ExitStack) -> tuple[Pair, Earlier | None]:
        """Return where to write, and the output that rows are taken from where it must be made again."""
        current, following = self.places.current, self.places.next
        if not current.output.exists():
            return current, None
        found = Manifest.load(self.places.manifest)
        moved = found is not None and found.input["digest"] != manifest.input["digest"]
        again = self.retry_errors and any(each.status == FAILED for each in entries(current.journal))
        if not (moved or again or following.output.exists()):
            return current, None
        there = sum(1 for _ in entries(current.journal))
        if self.total < min(there, self.manifest.input["rows"]):
            raise BadInput(
                f"the output has {there} rows and must be made again: --limit {self.total} would lose some "
                "of them."
            )
        with Output(current, self.job.lines.header):
            pass  # a torn tail is cut off
        earlier = Earlier(current, len(self.job.lines.header))
        stack.callback(earlier.close)
        following.output.touch()  # from now on this is what a run goes on with
        manifest.save(self.places.manifest)
        return following, earlier

    def _recount(self, output: Output, rows: Iterator[Row]) -> None:
        """Count the rows that are there, and pass over them in the input.

        Raises:
            Changed: they are not those of the input.
        """
        for entry, line in output.lines():
            row = next(rows, None)
            if row is None:
                return  # a smaller --limit than before
            if row.digest != entry.digest:
                raise Changed(
                    f"row {row.number} (line {row.line}) of {self.source.path} is not the one that "
                    f"{self.places.output} has there. Start anew with --overwrite."
                )
            self.tally.add(self.job.lines.read(line))

    def _run(
        self,
        output: Output,
        rows: Iterator[Row],
        earlier: Earlier | None,
        manifest: Manifest,
        asking: Asking,
        reporting: Reporting,
    ) -> Manifest:
        """Ask the rest; the manifest is saved whatever happens."""
        if output.done:
            reporting.say(f"Going on after {output.done} of {self.total} rows.")
        window = WINDOW * asking.concurrency
        known = manifest
        with showing(reporting.stream, self.total, output.done, quiet=reporting.quiet) as advance:

            def on_row(done: Done) -> None:
                self.tally.add(done.record)
                advance()

            async def go() -> None:
                nonlocal known
                async with asking.asker() as asker:
                    caller = Caller(
                        asker, Pace(asking.concurrency), patience=asking.patience, notice=reporting.say
                    )
                    run = Run(self.job, caller, output, manifest, self.places, on_row, earlier, window)
                    try:
                        await run.go(rows)
                    finally:
                        known = run.manifest

            try:
                asyncio.run(go())
            finally:
                replace(known, counts=self.tally.counts).save(self.places.manifest)
        if output.done < self.total:
            raise BadInput(
                f"{self.source.path} lost rows while it was read: {output.done} of {self.total} are written."
            )
        return known
