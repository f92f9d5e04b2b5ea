"""Rows of an earlier output by their content: 32 bytes a row in memory, their lines stay in the file."""

from __future__ import annotations

from typing import Any

import numpy as np

from structured_server.bulk.files import Pair
from structured_server.bulk.output import STATUSES

_ENTRIES = np.dtype(
    [("first", "<u8"), ("second", "<u8"), ("end", "<u8"), ("crc", "<u4"), ("status", "u1"), ("", "V3")]
)


class Earlier:
    """The rows of an output that is written to no more. `header`: the length of what is before them."""

    def __init__(self, pair: Pair, header: int) -> None:
        journal: Any = np.fromfile(pair.journal, dtype=_ENTRIES)
        self._first, self._second = journal["first"], journal["second"]
        self._ends, self._statuses = journal["end"], journal["status"]
        self._order = np.argsort(self._first, kind="stable")
        self._header = header
        self._file = pair.output.open("rb")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def find(self, digest: bytes) -> tuple[bytes, str] | None:
        """Return the line of a row with this content and what became of it; None where there is none."""
        first, second = np.frombuffer(digest, dtype="<u8")
        position = int(np.searchsorted(self._first, first, sorter=self._order))
        while position < len(self._order) and self._first[index := self._order[position]] == first:
            if self._second[index] == second:
                start = int(self._ends[index - 1]) if index else self._header
                self._file.seek(start)
                return self._file.read(int(self._ends[index]) - start), STATUSES[self._statuses[index]]
            position += 1
        return None
