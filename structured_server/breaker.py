"""A circuit breaker: after failures in a row, one is not asked for a while, and then only once to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

FAILURES = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

State = Literal["closed", "open", "half_open"]


@dataclass(slots=True)
class Breaker:
    """Closed it lets everything through. `failures` in a row open it for a pause, which doubles each time.

    After the pause it is half open: one attempt goes through, and decides whether it closes or opens again.
    It advises: attempts that are made all the same are heeded too.
    """

    clock: Callable[[], float]  # seconds
    failures: int = FAILURES
    _in_a_row: int = field(default=0, init=False)
    _pause_s: float = field(default=FIRST_PAUSE_S, init=False)
    _open_until: float | None = field(default=None, init=False)  # None while closed
    _trying: bool = field(default=False, init=False)

    @property
    def state(self) -> State:
        """Whether it lets attempts through."""
        if self._open_until is None:
            return "closed"
        return "open" if self.clock() < self._open_until else "half_open"

    def allows(self) -> bool:
        """Tell whether an attempt may be made now."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._trying)

    def attempt(self) -> None:
        """Take note that an attempt begins."""
        self._trying = self.state == "half_open"

    def succeeded(self) -> None:
        """Take note that an attempt went well: it closes."""
        self._in_a_row, self._pause_s, self._open_until, self._trying = 0, FIRST_PAUSE_S, None, False

    def failed(self) -> None:
        """Take note that an attempt failed."""
        self._in_a_row += 1
        self._trying = False
        state = self.state
        if state == "half_open":
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if state == "half_open" or (state == "closed" and self._in_a_row >= self.failures):
            self._open_until = self.clock() + self._pause_s

    def abandoned(self) -> None:
        """Take note that an attempt was given up, which says nothing."""
        self._trying = False
