"""A request while it is made, and what a change to it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Draft:
    """A request while it is made."""

    path: str
    body: Any
    text: bytes = b""
    method: str = "POST"
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("Content-Type", "application/json")])
    framing: str = "length"
    done: list[str] = field(default_factory=list)
    damaged: bool = False

    def set_header(self, name: str, value: str) -> None:
        """Put a header in place of those of its name."""
        self.headers = [each for each in self.headers if each[0].lower() != name.lower()]
        self.headers.append((name, value))


Change = Callable[[random.Random, Draft], None]
"""Changes a draft in place, by the dice."""


def apply(dice: random.Random, draft: Draft, changes: Sequence[Change]) -> None:
    """Make one of the changes."""
    change = dice.choice(changes)
    change(dice, draft)
    draft.done.append(change.__name__.strip("_"))
