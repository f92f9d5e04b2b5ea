"""How many requests may be under way: as many as the server takes without saying no.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): each answer raises the limit by 1 over
itself, by 1 a round; a refusal halves it, once for all that were sent before the last halving.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Pace:
    """A bound on what is under way, between 1 and `most`, that follows what the server says.

    What is entered is left again with `leave`.
    """

    def __init__(self, most: int, *, start: int = 4) -> None:
        assert most >= 1
        self.most = most
        self.limit = float(min(start, most))
        self.lowest = self.limit
        self._inside = 0
        self._resume_at = 0.0  # on the loop's clock
        self._lowered_at = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> float:
        """Wait for a place, and for the end of a pause; return the time, which `busy` wants back."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if now < self._resume_at:
                await asyncio.sleep(self._resume_at - now)
            elif self._inside < int(self.limit):
                self._inside += 1
                return now
            else:
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiting.append(waiter)
                try:
                    await waiter
                except asyncio.CancelledError:
                    if waiter.done() and not waiter.cancelled():  # its turn goes to the next
                        self._wake()
                    raise

    def leave(self) -> None:
        """Give the place back."""
        self._inside -= 1
        self._wake()

    def good(self) -> None:
        """Take note of an answer."""
        self.limit = min(float(self.most), self.limit + 1 / self.limit)

    def busy(self, entered: float, wait: float) -> None:
        """Take note of a refusal to what entered at that time: nothing is sent for `wait` seconds."""
        now = asyncio.get_running_loop().time()
        self._resume_at = max(self._resume_at, now + wait)
        if entered >= self._lowered_at:
            self.limit = max(1.0, self.limit / 2)
            self.lowest = min(self.lowest, self.limit)
            self._lowered_at = now

    def _wake(self) -> None:
        free = int(self.limit) - self._inside
        while self._waiting and free > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1
