"""Back-pressure as a value: no read happens without a permit.

Permits are counted in canvas positions, which the engine's sampler memory grows with, and in reads. Those who
wait stand in lines by rank: what somebody waits for goes before batches, first reads go before extra ones
(`lines.py`). Who would wait longer than `max_wait_s` is refused at once, with the estimate.
"""

from __future__ import annotations

import asyncio
import math

from structured_server.errors import Overloaded
from structured_server.lines import DEFAULT_LANE, NOTHING, Lane, Line, Rank, Weight

__all__ = ["DEFAULT_LANE", "NOTHING", "Admission", "Lane", "Rank", "Weight"]

LEARNING = 0.1
"""The weight of the latest permit in the moving average of how long permits are held."""


class Admission:
    """Hands out permits up to `capacity`; at most `max_waiting` batches stand in line.

    None of them for longer than `max_wait_s`, as far as that can be told beforehand: from how much stands
    before it, and from how long permits have been held lately. `engine` is what one engine can do, which is
    all there is until there are several.
    """

    def __init__(self, engine: Weight, *, max_waiting: int, max_wait_s: float = math.inf) -> None:
        self.engine = engine
        self.capacity = engine
        self.max_waiting = max_waiting
        self.max_wait_s = max_wait_s
        self._free = engine
        self._lines = {rank: Line() for rank in Rank}
        self._held_s: float | None = None  # how long a permit is held, on average
        self._written_with = NOTHING  # by permits for writing, which takes as long as it takes

    @property
    def in_use(self) -> Weight:
        """What the permits that are out now take together."""
        return self.capacity - self._free

    @property
    def waiting(self) -> int:
        """How many batches stand in line."""
        return sum(map(len, self._lines.values()))

    def resize(self, engines: int) -> None:
        """Change what there is to that of so many engines, of one at least. Permits that are out stay out."""
        capacity = self.engine * max(1, engines)
        self._free += capacity - self.capacity
        self.capacity = capacity
        self._grant()

    def estimated_wait_s(self, weight: Weight, *, extra: bool = False, lane: Lane = DEFAULT_LANE) -> float:
        """Return how long such a batch would wait for the last of what it wants: 0 where it fits now.

        What stands before it and what it lacks itself, in canvas positions or in reads, whichever is more,
        over what there is for reads, times how long permits for reads have been held lately.
        """
        if self._free.covers(weight) and not any(self._lines.values()):
            return 0.0
        rank = lane.rank(extra=extra)
        before = self._lines[rank].before(lane.key)
        for each in Rank:
            if each < rank:
                before += self._lines[each].weight
        lacking = before + weight - self._free
        there_is = (self.capacity - self._written_with).at_least(self.engine.share)
        return max(0.0, lacking.over(there_is)) * (self._held_s or 0.0)

    def expect(self, weight: Weight, *, lane: Lane = DEFAULT_LANE, left_s: float = math.inf) -> None:
        """Refuse a whole decision now whose first reads would wait too long for all of their permits.

        That is longer than `max_wait_s`, or than what is `left_s` until its deadline. What is more than one
        engine can do at once takes turns, each of which waits anew. On an idle server none of them waits, so
        that nothing is too large to be served there.

        Raises:
            Overloaded: they would.
        """
        if self._free.covers(weight) and not any(self._lines.values()) and left_s > 0:
            return
        turns = max(1, math.ceil(weight.over(self.engine)))
        wait_s = turns * self.estimated_wait_s(weight.at_most(self.engine), lane=lane)
        self._refuse_long_wait(weight, wait_s, left_s)

    def permit(
        self,
        weight: Weight,
        *,
        extra: bool = False,
        lane: Lane = DEFAULT_LANE,
        begun: bool = False,
        writes: bool = False,
    ) -> Permit:
        """Return a permit for the batch. Entering it waits in line; cancelling that leaves the line.

        The wait is not estimated for what has `begun`: what was done for it already would be lost. How long
        the permit is held says nothing about others where the model `writes`.
        """
        return Permit(self, weight, extra, lane, begun, writes)

    async def take(self, weight: Weight, extra: bool, lane: Lane, begun: bool, writes: bool) -> None:
        """Wait for what a permit is for.

        Raises:
            Overloaded: the line is full, or the wait would be too long.
        """
        await self._wait(weight, extra, lane, begun)
        if writes:
            self._written_with += weight

    def give_back(self, weight: Weight, held_s: float, writes: bool) -> None:
        """Let others have what a permit was for, which was held for so long."""
        if writes:
            self._written_with -= weight
        else:
            self._learn(held_s)
        self._give_back(weight)

    async def _wait(self, weight: Weight, extra: bool, lane: Lane, begun: bool) -> None:
        rank = lane.rank(extra=extra)
        if self._fits(weight) and not (
            any(self._lines.values()) and any(line for at, line in self._lines.items() if at <= rank)
        ):
            self._free -= weight
            return
        wait_s = self.estimated_wait_s(weight, extra=extra, lane=lane)
        if self.waiting >= self.max_waiting:
            raise Overloaded(
                f"{self.waiting} batches of reads are waiting already.",
                retry_after_s=_retry_after_s(wait_s),
                hint="Send the request again after a moment.",
                reason="queue_full",
            )
        if not begun:
            self._refuse_long_wait(weight, wait_s)
        line = self._lines[rank]
        waiter = line.join(weight, lane.key)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._give_back(weight)
            else:
                line.leave(waiter)
                self._grant()
            raise

    def _refuse_long_wait(self, weight: Weight, wait_s: float, left_s: float = math.inf) -> None:
        allowed_s = max(0.0, min(self.max_wait_s, left_s))
        if wait_s > allowed_s:
            raise Overloaded(
                f"{weight.positions} canvas positions would wait for about {wait_s:.1f} s; "
                f"{allowed_s:.1f} s are allowed.",
                retry_after_s=_retry_after_s(wait_s),
                hint="Send the request again after a moment, or take fewer samples.",
                reason="long_wait",
            )

    def _learn(self, seconds: float) -> None:
        known = self._held_s
        self._held_s = seconds if known is None else known + LEARNING * (seconds - known)

    def _give_back(self, weight: Weight) -> None:
        self._free += weight
        self._grant()

    def _fits(self, weight: Weight) -> bool:
        """Tell whether a batch may go in: there is room, or it would be alone and there never will be."""
        return self._free.covers(weight) or self._free == self.capacity

    def _grant(self) -> None:
        """Let in from the front of the lines for as long as the next one fits."""
        for line in self._lines.values():
            while (wanted := line.head()) is not None and self._fits(wanted):
                waiter = line.let_in()
                if waiter.granted.cancelled():
                    continue  # its task has yet to run and see that it left
                self._free -= waiter.weight
                waiter.granted.set_result(None)
            if line:
                return


class Permit:
    """What an admission gives for one batch, held from entering to leaving."""

    __slots__ = ("_admission", "_asked", "_since", "_weight", "_writes")

    def __init__(
        self, admission: Admission, weight: Weight, extra: bool, lane: Lane, begun: bool, writes: bool
    ) -> None:
        self._admission, self._weight, self._writes = admission, weight, writes
        self._asked = (extra, lane, begun)

    async def __aenter__(self) -> None:
        await self._admission.take(self._weight, *self._asked, self._writes)
        self._since = asyncio.get_running_loop().time()

    async def __aexit__(self, *_: object) -> None:
        held_s = asyncio.get_running_loop().time() - self._since
        self._admission.give_back(self._weight, held_s, self._writes)


def _retry_after_s(wait_s: float) -> int:
    """Return when to come back: after half of the wait, since others come back too."""
    return max(1, math.ceil(wait_s / 2))
