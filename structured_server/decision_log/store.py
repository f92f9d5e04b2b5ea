"""The file: a SQLite database, so that a record is there whole or not at all, whatever is killed when."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from structured_server.decision_log.record import Record
from structured_server.errors import DecisionLogError

APPLICATION = 0x73736C67  # "sslg": what SQLite's file header tells ours by
VERSION = 1
PAGE_BYTES = 4096
BUSY_S = 5.0

_TABLES = """
CREATE TABLE questions (digest TEXT PRIMARY KEY, asked TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE decisions (
  id TEXT PRIMARY KEY,
  at REAL NOT NULL,
  state_hash TEXT NOT NULL,
  questions TEXT NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX decisions_at ON decisions (at);
CREATE INDEX decisions_state ON decisions (state_hash);
CREATE INDEX decisions_questions ON decisions (questions);
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records: those that meet everything that is asked here. `since` counts, `until` does not."""

    identifiers: tuple[str, ...] = ()
    since: float | None = None  # seconds since the epoch
    until: float | None = None
    state_hash: str | None = None
    question_set: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> tuple[str, list[Any]]:
        """A condition in SQL, and its values."""
        parts: list[str] = ["TRUE"]
        values: list[Any] = []
        if self.identifiers:
            parts.append(f"id IN ({', '.join('?' * len(self.identifiers))})")
            values += self.identifiers
        for condition, value in (
            ("at >= ?", self.since),
            ("at < ?", self.until),
            ("state_hash = ?", self.state_hash),
            ("json_extract(body, '$.decision.provenance.question_set') = ?", self.question_set),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        for name, value in self.metadata:
            parts.append(
                "EXISTS (SELECT 1 FROM json_each(body, '$.decision.metadata') WHERE key = ? AND value = ?)"
            )
            values += (name, value)
        return " AND ".join(parts), values


class Store:
    """One connection to the file, for one thread."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        """Use `open` or `read` instead."""
        self._path = path
        self._connection = connection

    @classmethod
    def open(cls, path: str, *, most_bytes: int | None = None) -> Self:
        """Open a log to write into, and make it where there is none.

        Raises:
            DecisionLogError: it cannot be opened, or is something else.
        """
        with _ours(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite itself would ask the umask
            connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                if _is_empty(connection):
                    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                _set_up(connection, path)
                # In write-ahead mode a killed process loses nothing that was committed; that much is not
                # promised for a machine that loses power, but the file stays sound there too.
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA secure_delete = ON")
                if most_bytes is not None:
                    connection.execute(f"PRAGMA max_page_count = {max(64, most_bytes // PAGE_BYTES)}")
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @classmethod
    def read(cls, path: str) -> Self:
        """Open a log that is there, to read it only.

        Raises:
            DecisionLogError: there is none, or it is something else.
        """
        if not Path(path).is_file():
            raise DecisionLogError(f"there is no decision log at {path}.")
        with _ours(path):
            connection = sqlite3.connect(
                f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None
            )
            try:
                _check(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, records: Iterable[Record]) -> None:
        """Keep records, all of them or none. Where the file is full, the oldest tenth makes room.

        Raises:
            DecisionLogError: they could not be written.
        """
        records = list(records)
        with _ours(self._path):
            try:
                self._add(records)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                self._delete("id IN (SELECT id FROM decisions ORDER BY at LIMIT ?)", [self.count() // 10 + 1])
                self._add(records)

    def delete(self, selection: Selection) -> int:
        """Delete records, from the disk as well, and return how many there were.

        Raises:
            DecisionLogError: they could not be deleted.
        """
        with _ours(self._path):
            gone = self._delete(*selection.where)
            if gone:
                self._connection.execute("PRAGMA incremental_vacuum").fetchall()
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    def count(self) -> int:
        """Return how many records there are."""
        with _ours(self._path):
            found: int = self._connection.execute("SELECT count(*) FROM decisions").fetchone()[0]
        return found

    def select(self, selection: Selection = Selection(), *, limit: int = -1) -> Iterator[dict[str, Any]]:
        """Yield records with their questions, the oldest first.

        Raises:
            DecisionLogError: they could not be read.
        """
        where, values = selection.where
        with _ours(self._path):
            rows = self._connection.execute(
                "SELECT id, at, body, asked FROM decisions"  # noqa: S608
                f" JOIN questions ON questions.digest = decisions.questions WHERE {where}"
                " ORDER BY at, id LIMIT ?",
                [*values, limit],
            )
            with closing(rows):
                for identifier, at, body, questions in rows:
                    time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
                    yield {"id": identifier, "time": time, "questions": json.loads(questions)} | json.loads(
                        body
                    )

    def _add(self, records: Sequence[Record]) -> None:
        with self._transaction():
            for record in records:
                digest = sha256(record.questions.encode()).hexdigest()
                self._connection.execute(
                    "INSERT OR IGNORE INTO questions VALUES (?, ?)", (digest, record.questions)
                )
                self._connection.execute(
                    "INSERT INTO decisions VALUES (?, ?, ?, ?, ?)",
                    (record.identifier, record.at, record.state_hash, digest, record.body),
                )

    def _delete(self, where: str, values: Sequence[Any]) -> int:
        with self._transaction():
            gone = self._connection.execute(f"DELETE FROM decisions WHERE {where}", values).rowcount  # noqa: S608
            if gone:
                self._connection.execute(
                    "DELETE FROM questions"
                    " WHERE NOT EXISTS (SELECT 1 FROM decisions WHERE decisions.questions = questions.digest)"
                )
        return gone

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself has ended it where the disk is full
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


@contextmanager
def _ours(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise DecisionLogError(f"the decision log {path}: {error}.") from None
    except OSError as error:
        raise DecisionLogError(f"the decision log {path}: {error.strerror}.") from None


def _is_empty(connection: sqlite3.Connection) -> bool:
    empty: bool = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    return empty


def _set_up(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables, unless somebody has."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(connection):
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        _check(connection, path)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: str) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise DecisionLogError(f"{path} is no decision log.")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise DecisionLogError(
            f"{path} is a decision log of version {version}; this program knows {VERSION}."
        )
