"""Cutting a state that is longer than the engine's context leaves room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

LongState = Literal["reject", "head", "tail", "middle"]

GAP = "\n[...]\n"
"""Stands where the middle of a state was."""

LONGEST_TOKEN = 40
"""Characters; no vocabulary that is known has many tokens that are longer."""


def cut_state(state: str, keep: LongState, room: int, count: Callable[[str], int]) -> str:
    """Return as much of a state as takes at most `room` tokens by `count`.

    `head` keeps its beginning, `tail` its end, `middle` keeps both ends and leaves out the middle.
    """
    low, high = 0, min(len(state) - 1, max(0, room) * LONGEST_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_kept(state, keep, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return _kept(state, keep, low) if low else ""


def _kept(state: str, keep: LongState, length: int) -> str:
    """Return `length` characters of the state."""
    if keep == "head":
        return state[:length]
    if keep == "tail":
        return state[len(state) - length :]
    head = (length + 1) // 2
    return state[:head] + GAP + state[len(state) - (length - head) :]
