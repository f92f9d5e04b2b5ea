"""Back-pressure as a value: no read happens without a permit.

Permits are counted in canvas positions, which the engine's sampler memory grows with, and in reads. Those who
wait stand in a bounded line in order of arrival; extra reads stand in a line of their own and get what first
reads leave.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from structured_server.errors import Overloaded

RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True)
class Weight:
    """What a batch of reads takes from the engine."""

    positions: int  # canvas tokens, over all its reads
    reads: int


@dataclass(slots=True)
class _Waiter:
    weight: Weight
    granted: asyncio.Future[None]


class Admission:
    """Hands out permits up to `capacity`; at most `max_waiting` batches stand in line."""

    def __init__(self, capacity: Weight, *, max_waiting: int) -> None:
        self.capacity = capacity
        self.max_waiting = max_waiting
        self._free = capacity
        self._first: deque[_Waiter] = deque()
        self._extra: deque[_Waiter] = deque()

    @property
    def in_use(self) -> Weight:
        """What the permits that are out now take together."""
        return Weight(self.capacity.positions - self._free.positions, self.capacity.reads - self._free.reads)

    @property
    def waiting(self) -> int:
        """How many batches stand in line."""
        return len(self._first) + len(self._extra)

    @asynccontextmanager
    async def permit(self, weight: Weight, *, extra: bool = False) -> AsyncIterator[None]:
        """Hold a permit for the batch, waiting in line for it; cancelling leaves the line.

        Raises:
            Overloaded: the line is full.
        """
        await self._acquire(weight, self._extra if extra else self._first)
        try:
            yield
        finally:
            self._give_back(weight)

    async def _acquire(self, weight: Weight, line: deque[_Waiter]) -> None:
        assert self._covers(self.capacity, weight), "a batch must be cut to the capacity before it asks"
        if not self._first and not line and self._covers(self._free, weight):
            self._take(weight)
            return
        if self.waiting >= self.max_waiting:
            raise Overloaded(
                f"{self.waiting} batches of reads are waiting already.",
                retry_after_s=RETRY_AFTER_S,
                hint="Send the request again after a moment.",
            )
        waiter = _Waiter(weight, asyncio.get_running_loop().create_future())
        line.append(waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if not waiter.granted.cancelled():
                self._give_back(weight)
            elif waiter in line:
                line.remove(waiter)
                self._grant()
            raise

    def _give_back(self, weight: Weight) -> None:
        self._free = Weight(self._free.positions + weight.positions, self._free.reads + weight.reads)
        self._grant()

    def _take(self, weight: Weight) -> None:
        self._free = Weight(self._free.positions - weight.positions, self._free.reads - weight.reads)

    def _grant(self) -> None:
        """Let in from the front of the line for as long as the next one fits."""
        for line in (self._first, self._extra):
            while line and self._covers(self._free, line[0].weight):
                waiter = line.popleft()
                if waiter.granted.cancelled():
                    continue  # its task has yet to run and see that it left
                self._take(waiter.weight)
                waiter.granted.set_result(None)
            if line:
                return

    @staticmethod
    def _covers(available: Weight, wanted: Weight) -> bool:
        return available.positions >= wanted.positions and available.reads >= wanted.reads
