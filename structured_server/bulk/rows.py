"""Rows of a file, one after another: CSV, TSV or JSON lines, in memory that does not grow with the file.

A row that cannot be read is a row with a `problem`; only what concerns the whole file is an error.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, Protocol

from structured_server.bulk.errors import BadInput

Format = Literal["csv", "tsv", "jsonl"]
Fields = dict[str, Any]

LONGEST_LINE = 64 * 2**20
"""Bytes; a cell may have as many characters."""

MOST_COLUMNS = 10_000
TEXT = "state"  # the name of the only field of a JSON line that is text

_BOM = b"\xef\xbb\xbf"
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}


class Written(float):
    """A JSON number that is no whole one, with its own spelling."""

    written: str

    def __new__(cls, written: str) -> Written:
        """Read it.

        Raises:
            ValueError: it is beyond what a number of 64 bits can be.
        """
        number = super().__new__(cls, written)
        if not math.isfinite(number):
            raise ValueError(f"the number {written[:20]} is too large")
        number.written = written
        return number


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `raw` is a JSON line as it was written; `problem` is why the row cannot be asked."""

    number: int  # from 1, blank lines not counted
    line: int  # the first of its lines in the file
    fields: Fields
    raw: str | None
    problem: str | None
    digest: bytes  # 16 bytes, of its content


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over a file finds."""

    digest: str
    rows: int
    columns: tuple[str, ...]
    texts: bool  # whether there are JSON lines that are text


class Reader(Protocol):
    """A reader of the csv module."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def format_of(path: Path, given: str | None, option: str) -> Format:
    """Return a file's format: the one given, or that of its suffix.

    Raises:
        BadInput: the suffix is not known.
    """
    if given in ("csv", "tsv", "jsonl"):
        return given  # type: ignore[return-value]  # mypy does not narrow text to literals by `in`
    if found := _SUFFIXES.get(path.suffix.lower()):
        return found
    known = ", ".join(_SUFFIXES)
    raise BadInput(f"{path.name} has none of the suffixes {known}. Say which it is with {option}.")


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows."""

    path: Path
    format: Format

    def survey(self) -> Survey:
        """Read it all once: its digest, how many rows there are, and which columns.

        Raises:
            BadInput: it cannot be read, or its header cannot be used.
        """
        digest = blake2b(digest_size=16)
        columns: dict[str, None] = {}
        rows, texts = 0, False
        for row in self.rows(digest):
            rows += 1
            if self.format == "jsonl":
                columns |= dict.fromkeys(row.fields)
                texts = texts or (row.raw or "").startswith('"')
                if len(columns) > MOST_COLUMNS:
                    raise BadInput(
                        f"{self.path.name} has more than {MOST_COLUMNS} different fields: use fewer."
                    )
        if self.format != "jsonl":
            columns = dict.fromkeys(self._header())
        return Survey(digest.hexdigest(), rows, tuple(columns), texts)

    def rows(self, digest: _Hash | None = None) -> Iterator[Row]:
        """Yield the rows; `digest` is fed all bytes of the file.

        Raises:
            BadInput: the file cannot be read, or its header cannot be used.
        """
        try:
            with self.path.open("rb") as file:
                lines = self._lines(file, digest)
                yield from self._json_rows(lines) if self.format == "jsonl" else self._table_rows(lines)
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror}.") from None

    def _lines(self, file: BinaryIO, digest: _Hash | None) -> Iterator[bytes]:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                limit = LONGEST_LINE // 2**20
                raise BadInput(f"{self.path.name}, line {number}: longer than {limit} MiB. Lines end in \\n.")
            if digest is not None:
                digest.update(line)
            yield line.removeprefix(_BOM) if number == 1 else line

    def _json_rows(self, lines: Iterator[bytes]) -> Iterator[Row]:
        number = 0
        for line, data in enumerate(lines, 1):
            data = data.strip()
            if not data:
                continue
            number += 1
            fields: Fields = {}
            raw = problem = None
            try:
                raw = data.decode()
                fields = _fields(raw)
            except UnicodeDecodeError:
                problem = f"invalid_text: line {line} is not UTF-8."
            except (ValueError, RecursionError) as error:
                raw, problem = None, f"invalid_json: line {line}: {_said(error)}."
            yield Row(number, line, fields, raw, problem, _digest([data]))

    def _header(self) -> list[str]:
        with self.path.open("rb") as file:
            return self._checked_header(self._reader(self._lines(file, None)))

    def _table_rows(self, lines: Iterator[bytes]) -> Iterator[Row]:
        reader = self._reader(lines)
        header = self._checked_header(reader)
        about = "\0".join(header).encode()
        number, ended = 0, reader.line_num
        while True:
            line = ended + 1
            problem = None
            try:
                cells = next(reader, None)
            except csv.Error as error:
                cells, problem = [], f"invalid_csv: line {line}: {error}."
            ended = reader.line_num
            if cells is None:
                return
            if not cells and problem is None:
                continue  # a blank line
            number += 1
            if problem is None and len(cells) != len(header):
                problem = f"wrong_cells: line {line} has {len(cells)} cells, the header has {len(header)}."
            # A broken row has no content of its own that is known: its place stands for it.
            content = cells or [f"{line} {problem}"]
            fields = dict(zip(header, [*cells, *[""] * len(header)], strict=False))
            digest = _digest([about, *(each.encode("utf-8", "surrogatepass") for each in content)])
            yield Row(number, line, fields, None, problem, digest)

    def _reader(self, lines: Iterator[bytes]) -> Reader:
        csv.field_size_limit(LONGEST_LINE)
        return csv.reader(self._decoded(lines), delimiter=DELIMITERS[self.format], strict=True)

    def _decoded(self, lines: Iterator[bytes]) -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            try:
                yield line.decode()
            except UnicodeDecodeError:
                raise BadInput(
                    f"{self.path.name}, line {number}: not UTF-8. Convert the file, for example: "
                    f"iconv -f windows-1252 -t utf-8 {self.path.name} > utf8-{self.path.name}"
                ) from None

    def _checked_header(self, reader: Reader) -> list[str]:
        try:
            header = next((cells for cells in reader if cells), None)
        except csv.Error as error:
            raise BadInput(f"the header of {self.path.name} cannot be read: {error}.") from None
        if header is None:
            raise BadInput(f"{self.path.name} is empty: its first line must name the columns.")
        if nameless := [str(index) for index, name in enumerate(header, 1) if not name.strip()]:
            raise BadInput(f"{self.path.name}: columns without a name: {', '.join(nameless)}. Name them.")
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise BadInput(f"{self.path.name}: columns that occur twice: {', '.join(twice)}. Rename them.")
        return header


def _fields(raw: str) -> Fields:
    found = json.loads(raw, parse_float=Written, parse_constant=_no_constant, object_pairs_hook=_once_each)
    if isinstance(found, str):
        return {TEXT: found}
    if not isinstance(found, dict):
        raise ValueError("neither an object nor text")  # noqa: TRY004  one kind of error for what is no row
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> Fields:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"fields that occur twice: {', '.join(twice)}")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _said(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return str(error).partition(";")[0].rstrip(".")


def _digest(parts: list[bytes]) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
