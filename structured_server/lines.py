"""Who waits for a permit, and in which order: by rank, within a rank fairly between keys, then by arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from itertools import count


class Rank(IntEnum):
    """Lines, in the order in which they are served."""

    FIRST = 0
    EXTRA = 1
    BATCH_FIRST = 2
    BATCH_EXTRA = 3
    IDLE = 4


@dataclass(frozen=True, slots=True)
class Lane:
    """Who asks. Keys share evenly; batches wait behind what somebody waits for, what is `idle` behind all."""

    key: str = ""
    batch: bool = False
    idle: bool = False

    def rank(self, *, extra: bool) -> Rank:
        """Return the line to stand in."""
        if self.idle:
            return Rank.IDLE
        if self.batch:
            return Rank.BATCH_EXTRA if extra else Rank.BATCH_FIRST
        return Rank.EXTRA if extra else Rank.FIRST


DEFAULT_LANE = Lane()


@dataclass(frozen=True, slots=True)
class Weight:
    """What a batch of reads takes from the engine."""

    positions: int  # canvas tokens, over all its reads
    reads: int

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.positions + other.positions, self.reads + other.reads)

    def __sub__(self, other: Weight) -> Weight:
        return Weight(self.positions - other.positions, self.reads - other.reads)

    def __mul__(self, times: int) -> Weight:
        return Weight(self.positions * times, self.reads * times)

    def covers(self, other: Weight) -> bool:
        """Tell whether this is enough for the other."""
        return self.positions >= other.positions and self.reads >= other.reads

    def over(self, other: Weight) -> float:
        """Return how many times the other this is, in what it is more of."""
        return max(self.positions / other.positions, self.reads / other.reads)

    @property
    def share(self) -> Weight:
        """What one of its reads has if they share evenly."""
        return Weight(self.positions // self.reads or 1, 1)

    def at_least(self, other: Weight) -> Weight:
        """Return this, or the other in what it is more of."""
        return Weight(max(self.positions, other.positions), max(self.reads, other.reads))

    def at_most(self, other: Weight) -> Weight:
        """Return as much of this as the other covers."""
        return Weight(min(self.positions, other.positions), min(self.reads, other.reads))


NOTHING = Weight(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """Somebody in line. `granted` is set when it is let in, cancelled when it does not want to wait on."""

    key: str
    number: int  # of arrival
    weight: Weight
    granted: asyncio.Future[None]


class Line:
    """Those who wait with one rank.

    Start-time fair queueing (Goyal, Vin and Cheng 1996) by canvas positions: virtual time goes on with what
    is let in, and the next one in is of the key whose turn comes earliest in it. Who leaves costs its key
    nothing.
    """

    def __init__(self) -> None:
        self.weight = NOTHING  # of all who wait
        self._length = 0
        self._numbers = count()
        self._now = 0.0  # virtual time: the turn of the last one who was let in
        self._waiting: dict[str, deque[Waiter]] = {}  # by key; no key without anybody
        self._turns: dict[str, float] = {}  # by key: the virtual time at which its next one's turn comes

    def __len__(self) -> int:
        return self._length

    def before(self, key: str) -> Weight:
        """Return the weight of all who would be let in before somebody of this key who came now."""
        if len(self._waiting) == (key in self._waiting):
            return self.weight
        found = NOTHING
        for waiter in self._waiting.get(key, ()):
            found += waiter.weight
        turn = max(self._now, self._turns.get(key, 0.0)) + found.positions
        for other, waiting in self._waiting.items():
            at = self._turns[other]
            for waiter in waiting if other != key else ():
                if at > turn:
                    break
                found += waiter.weight
                at += waiter.weight.positions
        return found

    def join(self, weight: Weight, key: str) -> Waiter:
        """Stand in line."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
            self._turns[key] = max(self._now, self._turns.get(key, 0.0))
        waiter = Waiter(key, next(self._numbers), weight, asyncio.get_running_loop().create_future())
        waiting.append(waiter)
        self.weight += weight
        self._length += 1
        return waiter

    def head(self) -> Weight | None:
        """Return what the next one wants, None where nobody waits."""
        return self._waiting[self._next_key()][0].weight if self._waiting else None

    def let_in(self) -> Waiter:
        """Take the next one out of the line."""
        waiter = self._waiting[self._next_key()][0]
        self._now = self._turns[waiter.key]
        if not waiter.granted.cancelled():
            self._turns[waiter.key] += waiter.weight.positions
        self._remove(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Take out somebody who does not want to wait any longer, if it is still there."""
        if waiter in self._waiting.get(waiter.key, ()):
            self._remove(waiter)

    def _next_key(self) -> str:
        if len(self._waiting) == 1:
            return next(iter(self._waiting))
        return min(self._waiting, key=lambda key: (self._turns[key], self._waiting[key][0].number))

    def _remove(self, waiter: Waiter) -> None:
        waiting = self._waiting[waiter.key]
        waiting.remove(waiter)
        self.weight -= waiter.weight
        self._length -= 1
        if not waiting:
            del self._waiting[waiter.key]
        if not self._waiting:
            self._now = 0.0
            self._turns.clear()
