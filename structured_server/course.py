"""A decision on its way: what it has until when, where it goes, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass, field

from structured_server.admission import DEFAULT_LANE, Admission, Lane
from structured_server.backends import Engine


@dataclass(slots=True)
class Lap:
    """Seconds that one group spent waiting for permits, and waiting for the engine."""

    queue: float = 0.0
    engine: float = 0.0
    last_batch: float = 0.0


@dataclass(slots=True)
class Course:
    """One decision on its way: its deadline on the loop's clock, and its legs, one after the other.

    A leg holds the laps that are run at the same time. `own` bounds what the whole decision asks for at once
    to what one engine can do, so that on an idle server none is too large to be served.
    """

    deadline: float
    seconds: float  # from the beginning to the deadline
    own: Admission
    lane: Lane = DEFAULT_LANE
    key: bytes = b""  # what its first prompt begins with, by which it is routed
    engine: Engine | None = None  # the one that all its reads go to, once the first has been routed
    begun: bool = False  # whether it has had a permit
    legs: list[list[Lap]] = field(default_factory=list)

    def leg(self) -> None:
        """Begin what comes after all that was done so far."""
        self.legs.append([])

    def lap(self) -> Lap:
        """Begin the lap of a group."""
        lap = Lap()
        self.legs[-1].append(lap)
        return lap

    @property
    def queue(self) -> float:
        """Seconds that it waited for permits: in each leg the lap that waited longest."""
        return sum(max((lap.queue for lap in leg), default=0.0) for leg in self.legs)

    @property
    def engine_s(self) -> float:
        """Seconds that it waited for the engine, likewise."""
        return sum(max((lap.engine for lap in leg), default=0.0) for leg in self.legs)
