"""From a row to the body of `POST /decide`: which of its columns the questions are about."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from structured_server.bulk.asker import Body
from structured_server.bulk.errors import BadInput
from structured_server.bulk.rows import TEXT, Row, Survey

STATE_COLUMNS = ("state", "text")
"""A column of one of these names is the state where no other is said."""


class Unusable(Exception):
    """A row that nothing can be asked about: a code and a message, `code: message`."""


class Renderer(Protocol):
    """Makes the body that a row is asked with; a template is another one."""

    def __call__(self, row: Row) -> Body:
        """Return the body.

        Raises:
            Unusable: nothing can be asked about this row.
        """
        ...


def body_of(row: Row, render: Renderer) -> Body:
    """Return the body that a row is asked with.

    Raises:
        Unusable: nothing can be asked about it, or it could not even be read.
    """
    if row.problem is not None:
        raise Unusable(row.problem)
    return render(row)


@dataclass(frozen=True, slots=True)
class StateBodies:
    """The same questions and options for every row, its state from one column or from several as JSON."""

    common: Mapping[str, Any]  # the body without its state
    columns: tuple[str, ...]
    single: bool  # whether the state is the column's value, rather than an object of the columns

    def __call__(self, row: Row) -> Body:
        """Return the body.

        Raises:
            Unusable: the row has no state.
        """
        if row.raw is not None and row.raw.startswith('"'):
            state: Any = row.fields[TEXT]
        elif self.single:
            state = row.fields.get(self.columns[0])
        else:
            state = {name: row.fields[name] for name in self.columns if name in row.fields}
        if state is None or not state or (isinstance(state, str) and not state.strip()):
            where = self.columns[0] if self.single else "the row"
            raise Unusable(f"empty_state: line {row.line}: {where} is empty.")
        return {**self.common, "state": state}

    def told(self) -> str:
        """Say what the state is, for people."""
        if self.single:
            return f"the column {self.columns[0]}"
        return f"the columns {', '.join(self.columns)} as JSON"


def state_bodies(
    common: Mapping[str, Any], survey: Survey, column: str | None, apart: Collection[str]
) -> StateBodies:
    """Choose the state: `column`, or the only one, or the one of `STATE_COLUMNS`, or all of them as JSON.

    Columns in `apart` (ids, right answers) are never part of what is chosen.

    Raises:
        BadInput: there is no such column, or none at all.
    """
    if column is not None:
        require_column(survey, column, "--state-column")
        return StateBodies(common, (column,), single=True)
    left = tuple(name for name in survey.columns if name not in apart)
    if not left:
        raise BadInput("the input has no column that could be the state.")
    named = tuple(name for name in STATE_COLUMNS if name in left)
    for only in (left, named):
        if len(only) == 1:
            return StateBodies(common, only, single=True)
    return StateBodies(common, left, single=False)


def require_column(survey: Survey, name: str, option: str) -> None:
    """See to it that there is such a column.

    Raises:
        BadInput: there is none.
    """
    if name not in survey.columns:
        known = ", ".join(survey.columns[:30]) or "none"
        raise BadInput(f"{option} {name}: the input has no such column. It has: {known}.")
