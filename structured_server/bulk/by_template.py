"""Bodies by a template: a row's columns are its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from structured_server.bulk.asker import Body
from structured_server.bulk.bodies import Unusable
from structured_server.bulk.errors import BadInput
from structured_server.bulk.rows import Row
from structured_server.templates import Template, TemplateError

Complete = Callable[[Body], Body]
"""Adds to a body what the options of a run say, and takes its state away."""


@dataclass(frozen=True, slots=True)
class TemplateBodies:
    """What a template comes to for each row. Variables that are `given` are the same for all of them."""

    template: Template
    given: Mapping[str, Any]
    questions: Mapping[str, Any]  # of every row
    complete: Complete

    def __call__(self, row: Row) -> Body:
        """Return the body.

        Raises:
            Unusable: the template cannot be filled in with this row, or asks something else of it.
        """
        try:
            asked = render(self.template, row, self.given)
        except TemplateError as error:
            raise Unusable(f"template: line {row.line}: {error}") from None
        if asked["questions"] != self.questions:
            raise Unusable(f"template: line {row.line}: the questions are not those of the other rows.")
        if not asked.get("state"):
            raise Unusable(f"empty_state: line {row.line}: the template comes to no state.")
        return {**self.complete(asked), "state": asked["state"]}

    def told(self) -> str:
        """Say what the state is, for people."""
        return f"what {self.template.name} makes of a row"


def render(template: Template, row: Row, given: Mapping[str, Any]) -> Body:
    """Return what a template comes to for a row.

    Raises:
        TemplateError: it cannot be filled in.
    """
    # An empty cell of a table is text; what a JSON line leaves out, or has as null, is not given.
    fields = {name: value for name, value in row.fields.items() if value is not None}
    return template.render({**fields, **given}, more_allowed=True)


def first_body(
    template: Template, rows: Iterable[Row], columns: Iterable[str], given: Mapping[str, Any]
) -> Body:
    """Return what the template comes to for the first row that it can be filled in with.

    Raises:
        BadInput: a variable has no column, is none of the template's, or there is no such row.
    """
    there_are = {*columns, *given}
    missing = [each.name for each in template.variables if each.required and each.name not in there_are]
    if missing:
        raise BadInput(
            f"{template.name} needs {', '.join(missing)}; the input has {', '.join(sorted(there_are))}. "
            f"Name its columns so, or give what is the same for all rows as -v {missing[0]}=TEXT."
        )
    known = [each.name for each in template.variables]
    if unknown := [name for name in given if name not in known]:
        raise BadInput(f"{template.name} has no variable {', '.join(unknown)}; it has {', '.join(known)}.")
    problem = "the input has no rows."
    for row in rows:
        if row.problem is None:
            try:
                return render(template, row, given)
            except TemplateError as error:
                problem = str(error)
    raise BadInput(problem)
