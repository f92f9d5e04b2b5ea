"""Files beside the output: their names, a lock that lets one run write, and files replaced as a whole."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from structured_server.bulk.errors import BadInput


@dataclass(frozen=True, slots=True)
class Pair:
    """An output and its journal."""

    output: Path
    journal: Path

    def remove(self) -> None:
        """Delete both, if there: the journal first, since one that is alone means a cut `promote`."""
        self.journal.unlink(missing_ok=True)
        self.output.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run writes."""

    output: Path

    @property
    def current(self) -> Pair:
        """The output itself."""
        return Pair(self.output, self._beside(".progress"))

    @property
    def next(self) -> Pair:
        """An output that is made from the current one, and takes its place when it is whole."""
        return Pair(self._beside(".next"), self._beside(".next.progress"))

    @property
    def manifest(self) -> Path:
        """What the output was made from."""
        return self._beside(".manifest.json")

    def promote(self) -> None:
        """Put the next output in the place of the current one; `recover` ends what is cut short."""
        self.next.output.replace(self.current.output)
        self.next.journal.replace(self.current.journal)

    def recover(self) -> None:
        """End a `promote` that was cut short between its two steps."""
        if self.next.journal.exists() and not self.next.output.exists():
            self.next.journal.replace(self.current.journal)

    def remove_all(self) -> None:
        """Delete the output and all that stands beside it, but the lock."""
        for pair in (self.next, self.current):
            pair.remove()
        self.manifest.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs away from this output.

        Raises:
            BadInput: another one is at work, or the folder cannot be written to.
        """
        path = self._beside(".lock")
        while True:
            try:
                file = path.open("a+")
            except OSError as error:
                raise BadInput(f"cannot write {path}: {error.strerror}.") from None
            with file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    file.seek(0)
                    holder = file.read().strip() or "another process"
                    raise BadInput(
                        f"{self.output} is being written by {holder}. Wait until it is done, or end it."
                    ) from None
                if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                    continue  # who held it has removed it meanwhile
                file.truncate(0)
                file.write(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
                file.flush()
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return

    def _beside(self, suffix: str) -> Path:
        return self.output.with_name(self.output.name + suffix)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it has its old content or its new one, whatever happens."""
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
