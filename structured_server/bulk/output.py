"""The output and its journal: rows that are written are never lost, and never written twice.

The journal has 32 bytes for each row, in the output's order: a digest of the row's content, where its line
ends in the output, the line's CRC-32, and what became of it. A row's line is written before its entry. Bytes
after the last entry's line are a torn tail, and cut off when the output is opened again. Both go to the disk
once a second, the output first: after a power failure the journal may be ahead by that, and is shortened.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from structured_server.bulk.errors import BadInput
from structured_server.bulk.files import Pair
from structured_server.bulk.flat import DECIDED, FAILED, UNDECIDED

STATUSES = (DECIDED, UNDECIDED, FAILED)
SYNC_S = 1.0

_ENTRY = struct.Struct("<16sQIB3x")


@dataclass(frozen=True, slots=True)
class Entry:
    """What the journal says of a row."""

    digest: bytes
    end: int
    crc: int
    status: str


def entries(journal: Path) -> Iterator[Entry]:
    """Yield the whole entries of a journal."""
    if not journal.exists():
        return
    with journal.open("rb") as file:
        while len(data := file.read(_ENTRY.size)) == _ENTRY.size:
            digest, end, crc, status = _ENTRY.unpack(data)
            yield Entry(digest, end, crc, STATUSES[status])


class Output:
    """An output that rows are put behind; `done` of them are there already. A context that closes it.

    Raises:
        BadInput: it cannot be written, or something else has changed it.
    """

    def __init__(self, pair: Pair, header: bytes) -> None:
        self._pair = pair
        self._header = len(header)
        try:
            size = pair.output.stat().st_size if pair.output.exists() else 0
            if size > len(header) and not pair.journal.exists():
                raise BadInput(
                    f"{pair.journal} is missing, so {pair.output} cannot be gone on with. Move it away, or "
                    "start anew with --overwrite."
                )
            self._output = pair.output.open("r+b" if pair.output.exists() else "w+b", buffering=0)
            self._journal = pair.journal.open("r+b" if pair.journal.exists() else "w+b", buffering=0)
        except OSError as error:
            raise BadInput(f"cannot write {pair.output}: {error.strerror}.") from None
        self._synced = time.monotonic()
        try:
            self.done, self._end = self._repair(header)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.sync()
        finally:
            self._close()

    def put(self, digest: bytes, line: bytes, status: str) -> None:
        """Write a row's line.

        Raises:
            BadInput: the disk is full, or the like.
        """
        entry = _ENTRY.pack(digest, self._end + len(line), crc32(line), STATUSES.index(status))
        try:
            _write_all(self._output.fileno(), line)
            _write_all(self._journal.fileno(), entry)
        except OSError as error:
            self._cut(self.done, self._end)
            raise BadInput(
                f"cannot write {self._pair.output}: {error.strerror}. What was written before is whole."
            ) from None
        self._end += len(line)
        self.done += 1
        if time.monotonic() - self._synced >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Have the disk keep what was written.

        Raises:
            BadInput: it cannot.
        """
        try:
            os.fsync(self._output.fileno())
            os.fsync(self._journal.fileno())
        except OSError as error:
            raise BadInput(f"the disk does not keep {self._pair.output}: {error.strerror}.") from None
        self._synced = time.monotonic()

    def lines(self) -> Iterator[tuple[Entry, bytes]]:
        """Yield the rows that are there."""
        start = self._header
        with self._pair.output.open("rb") as file:
            file.seek(start)
            for entry in entries(self._pair.journal):
                yield entry, file.read(entry.end - start)
                start = entry.end

    def _close(self) -> None:
        self._output.close()
        self._journal.close()

    def _repair(self, header: bytes) -> tuple[int, int]:
        """Cut off what is torn; return how many rows are left, and where they end."""
        size = os.fstat(self._output.fileno()).st_size
        done, end = os.fstat(self._journal.fileno()).st_size // _ENTRY.size, self._header
        crc = 0
        while done:
            self._journal.seek((done - 1) * _ENTRY.size)
            _, end, crc, _ = _ENTRY.unpack(self._journal.read(_ENTRY.size))
            if end <= size:
                break
            done, end = done - 1, self._header
        if done:
            self._require_untouched(done, end, crc, header)
        else:
            self._output.seek(0)
            self._output.truncate(0)
            _write_all(self._output.fileno(), header)
        self._cut(done, end)
        return done, end

    def _cut(self, done: int, end: int) -> None:
        """Cut both off behind so many rows, and write on from there."""
        for file, size in ((self._output, end), (self._journal, done * _ENTRY.size)):
            file.truncate(size)
            file.seek(size)

    def _require_untouched(self, done: int, end: int, crc: int, header: bytes) -> None:
        start = self._header
        if done > 1:
            self._journal.seek((done - 2) * _ENTRY.size)
            _, start, _, _ = _ENTRY.unpack(self._journal.read(_ENTRY.size))
        self._output.seek(0)
        same = self._output.read(len(header)) == header
        self._output.seek(start)
        if not same or crc32(self._output.read(end - start)) != crc:
            raise BadInput(
                f"{self._pair.output} is not as it was written: something else has changed it. Move it away, "
                "or start anew with --overwrite."
            )


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
