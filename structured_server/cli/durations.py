"""Times as people write them: 60, 60s, 1.5m, 500ms, 1m30s."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def seconds_of(value: Any) -> float:
    """Return seconds.

    Raises:
        ValueError: it is no time above 0; the message says what one looks like.
    """
    found = _seconds(value)
    if found is None or not 0 < found < float("inf"):
        raise ValueError("must be a time such as 60, 60s or 1m30s")
    return found


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    text = str(value).strip().lower()
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


class Duration(click.ParamType[float]):
    """A time, as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds, or fail as click does."""
        try:
            return seconds_of(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
