"""How many reads to make, and what is done to their numbers: as a request asks, or as was fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from structured_server.core.distribution import STUDENT_T_975
from structured_server.core.questions import Question

MAX_DRAWS = len(STUDENT_T_975) + 1
MAX_READS = 64
EXTRA_DRAWS = 3
DEFAULT_ENTROPY_THRESHOLD = 0.1


@dataclass(frozen=True, slots=True)
class ByType:
    """A number for each type of question."""

    noul: float
    choice: float
    score: float

    @classmethod
    def same(cls, value: float) -> ByType:
        """Return one number for all types."""
        return cls(value, value, value)

    def of(self, question: Question) -> float:
        """Return the number for a question."""
        value: float = getattr(self, question.kind)
        return value

    @property
    def smallest(self) -> float:
        """The smallest of the numbers; nan where one of them is."""
        numbers = (self.noul, self.choice, self.score)
        return math.nan if any(map(math.isnan, numbers)) else min(numbers)

    @property
    def largest(self) -> float:
        """The largest of the numbers."""
        return max(self.noul, self.choice, self.score)


UNTEMPERED = ByType.same(1.0)


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """How many draws to take: a number, or one and `extra_draws` more where any question is uncertain.

    The entropy thresholds are in nats, compared with the first draw's entropy before any temperature. `lead`
    sends the first of several draws ahead, so that the others find its prompt in the engine's prefix cache.
    `max_reads` bounds the reads of a decision; None allows `MAX_READS`, or one draw of everything if that
    takes more. A question's log-probabilities are divided by its `temperatures`.
    """

    samples: int | Literal["auto"] = "auto"
    entropy_thresholds: ByType = ByType.same(DEFAULT_ENTROPY_THRESHOLD)
    lead: bool = False
    max_reads: int | None = None
    temperatures: ByType = UNTEMPERED
    extra_draws: int = EXTRA_DRAWS

    def __post_init__(self) -> None:
        if self.samples != "auto" and not 1 <= self.samples <= MAX_DRAWS:
            raise ValueError(f"samples must be auto or from 1 to {MAX_DRAWS}, got {self.samples}")
        if not 0 <= self.extra_draws < MAX_DRAWS:
            raise ValueError(f"extra draws must be from 0 to {MAX_DRAWS - 1}, got {self.extra_draws}")
        if not self.entropy_thresholds.smallest >= 0:
            raise ValueError(f"entropy thresholds must be 0 nats or more, got {self.entropy_thresholds}")
        if not (self.temperatures.smallest > 0 and self.temperatures.largest < math.inf):
            raise ValueError(f"temperatures must be above 0 and finite, got {self.temperatures}")

    @property
    def most_draws(self) -> int:
        """The draws that are taken at most."""
        return 1 + self.extra_draws if self.samples == "auto" else self.samples


@dataclass(frozen=True, slots=True)
class FittedPolicy:
    """Temperatures and entropy thresholds that were fitted for the questions of one fingerprint.

    Either may be None: then it was not fitted.
    """

    name: str
    fingerprint: str
    temperatures: ByType | None = None
    thresholds: ByType | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Which fitted policy a decision met, and whether it was fitted for just such decisions.

    Where it was not, nothing of it was applied.
    """

    policy: FittedPolicy
    fingerprint_match: bool
