"""Rows of the output as text, and back: what was read is kept as it was written, answers stand behind it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structured_server.bulk.rows import DELIMITERS, TEXT, Format, Row, Written


@dataclass(frozen=True, slots=True)
class Lines:
    """How rows are written. `kept` are the input's columns, `added` those of the answers."""

    format: Format
    kept: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def header(self) -> bytes:
        """The line before all rows, with its end; nothing in JSON lines."""
        return b"" if self.format == "jsonl" else self._table_line([*self.kept, *self.added])

    def line(self, row: Row, answers: Mapping[str, Any]) -> bytes:
        """Return a row with its answers, its line's end included."""
        if self.format == "jsonl":
            return _json_line(row, answers)
        cells = [cell(row.fields.get(name)) for name in self.kept]
        return self._table_line([*cells, *(cell(answers.get(name)) for name in self.added)])

    def read(self, line: bytes) -> dict[str, Any]:
        """Return the columns of a line that `line` made; in a table all of them are text."""
        if self.format == "jsonl":
            found: dict[str, Any] = json.loads(line)
            return found
        text = io.StringIO(line.decode(), newline="")
        cells = next(csv.reader(text, delimiter=DELIMITERS[self.format], strict=True))
        return dict(zip((*self.kept, *self.added), cells, strict=True))

    def _table_line(self, cells: Sequence[str]) -> bytes:
        text = io.StringIO(newline="")
        # With this end, which is cut off again, a lone carriage return in a cell is quoted too.
        csv.writer(text, delimiter=DELIMITERS[self.format], lineterminator="\r\n").writerow(cells)
        return text.getvalue()[:-2].encode("utf-8", "backslashreplace") + b"\n"


def cell(value: Any) -> str:
    """Return a JSON value as a cell: text as it is, numbers as they were written, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return value.written if isinstance(value, Written) else json.dumps(value, ensure_ascii=False)


def _json_line(row: Row, answers: Mapping[str, Any]) -> bytes:
    added = json.dumps(answers, ensure_ascii=False, allow_nan=False)
    if row.raw is None:
        kept = json.dumps(row.fields, ensure_ascii=False)
    elif row.raw.startswith("{"):
        kept = row.raw
    else:
        kept = f'{{"{TEXT}": {row.raw}}}'
    comma = "" if not kept[1:-1].strip() else ", "
    return f"{kept[:-1]}{comma}{added[1:]}\n".encode("utf-8", "backslashreplace")
