"""What a template writes: its own text, with a mark where each value is to stand.

The text that is parsed never holds a value, only marks, so a value cannot become syntax. `filling` puts the
values in place of the marks when JSON or YAML has been read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LONGEST = 4 << 20
"""Characters that a template may come to, its values included."""
MOST_SPACES = 100

# Of the private use area: in no template's words, printable for YAML, not changed by filters.
BEGIN, BARE, END = "\ue000", "\ue001", "\ue002"
MARK = re.compile(f"([{BEGIN}{BARE}])([0-9]{{1,9}}){END}")


class TooLong(Exception):
    """There is more than `LONGEST` characters of it."""


class Json(str):
    """A value's JSON text, which outside of quotes is the value itself."""

    value: Any


@dataclass(frozen=True, slots=True)
class Indented:
    """A value whose place is moved to the right: what it holds stays as it is."""

    value: Any
    spaces: int

    def __str__(self) -> str:
        raise TypeError("indent must come last")


@dataclass(frozen=True, slots=True)
class Placed:
    """A value, and where the template says that it goes."""

    value: Any
    line: int
    name: str  # of the variable it is made of, as far as that can be told


class Page:
    """The text so far, and the values that its marks stand for."""

    def __init__(self) -> None:
        self.values: list[Placed] = []
        self._written: list[str] = []
        self._length = 0

    @property
    def text(self) -> str:
        """What was written, with its marks."""
        return "".join(self._written)

    def write(self, text: str) -> None:
        """Add text of the template.

        Raises:
            TooLong: there is no room for it.
        """
        self._count(text)
        self._written.append(text)

    def place(self, value: Any, line: int, name: str) -> str:
        """Return the mark that stands for a value.

        Raises:
            ValueError: JSON has no word for it.
            TooLong: there is no room for it.
        """
        spaces = 0
        if isinstance(value, Indented):
            value, spaces = value.value, value.spaces
        try:
            if isinstance(value, str):
                self._count(value)
            else:
                self._count(text := to_json(value))
                value = text.value
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        self.values.append(Placed(value, line, name))
        return " " * spaces + f"{BEGIN}{len(self.values) - 1}{END}"

    def shown(self, text: str) -> str:
        """Return text with the names of variables for their marks."""
        return MARK.sub(lambda mark: f"{{{{ {self.values[int(mark[2])].name} }}}}", text)

    def _count(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("there is half a character in it (a lone surrogate), which is no text") from None
        self._length += len(text)
        if self._length > LONGEST:
            raise TooLong


def to_json(value: Any, indent: int | None = None) -> Json:
    """Return a value as JSON.

    Raises:
        ValueError: JSON has no word for it.
    """
    if isinstance(value, Iterator):
        value = list(value)
    try:
        text = Json(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent))
        text.value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"{type(value).__name__} cannot be written as JSON") from None
    return text


def indented(value: Any, spaces: Any) -> Indented:
    """Return a value whose place is moved to the right.

    Raises:
        TypeError: that is no number of spaces.
    """
    if not isinstance(spaces, int) or not 0 <= spaces <= MOST_SPACES:
        raise TypeError(f"indent needs a number of spaces, at most {MOST_SPACES}")
    return Indented(value, spaces)
