"""The canary: a decision whose answer is known, made while nothing else is, to see "healthy but wrong"."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from structured_server.admission import NOTHING, Admission, Lane
from structured_server.core.answers import Answer
from structured_server.core.decision import Decision
from structured_server.driver import Driver, Outcome, Query
from structured_server.errors import Overloaded, StructuredServerError
from structured_server.metrics import Metrics
from structured_server.readiness import ReadinessMonitor

POLL_S = 1.0
LARGEST_DRIFT = 0.1
"""How far a probability may be from the last run's before that is worth a warning."""

LANE = Lane(idle=True)

log = logging.getLogger(__name__)


class Canary:
    """Asks one query with known answers, by question id, again and again. Start `run` as a task.

    It is due `every_s` seconds after it was last, or after the engine became ready, if callers have asked
    anything meanwhile or it is the first since then; it waits for a moment in which the engine has nothing
    to do. So it costs nobody more than the read that it has in flight, and keeps nothing awake.
    """

    def __init__(
        self,
        query: Query,
        expected: Mapping[str, str],
        *,
        every_s: float,
        driver: Driver,
        admission: Admission,
        readiness: ReadinessMonitor,
        metrics: Metrics,
    ) -> None:
        self._query, self._expected, self._every_s = query, expected, every_s
        self._driver, self._admission = driver, admission
        self._readiness, self._metrics = readiness, metrics
        self._readied = 0  # how often the engine had become ready when that was last looked at
        self._since = 0.0  # when it did, or when the last run began, on the loop's clock
        self._first = True  # whether the next run is the first since then
        self._asked = 0  # what callers had asked for when the last run began
        self._standing = ""  # what the last run came to
        self._before: Outcome | None = None

    async def run(self) -> None:
        """Look every second whether a run is due. Never returns."""
        while True:
            await asyncio.sleep(POLL_S)
            if self._due():
                await self._ask()

    def _due(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._readied != self._readiness.times_ready:
            self._readied, self._since, self._first = self._readiness.times_ready, now, True
        wanted = self._first or self._driver.asked != self._asked
        return (
            self._readiness.now.ready
            and now - self._since >= self._every_s
            and wanted
            and self._admission.in_use == NOTHING
            and not self._admission.waiting
        )

    async def _ask(self) -> None:
        self._since, self._asked = asyncio.get_running_loop().time(), self._driver.asked
        try:
            outcome = await self._driver.decide(self._query, LANE)
        except Overloaded:
            return  # callers came first: it is tried again
        except StructuredServerError as error:
            self._stands("failed", f"the canary could not be read: {error.code}")
        except Exception as error:  # a bug must not end the canary
            self._stands("failed", "the canary could not be read", bug=error)
        else:
            self._judge(outcome)
        self._first = False

    def _judge(self, outcome: Outcome) -> None:
        self._compare(outcome)
        wrong = [name for name, key in self._expected.items() if not _says(outcome.decision, name, key)]
        self._metrics.canary_judged(not wrong)
        if wrong:
            self._stands("wrong", f"the canary is answered wrongly: {', '.join(wrong)}")
        else:
            self._stands("right", "the canary is answered rightly")

    def _compare(self, outcome: Outcome) -> None:
        """Hold the probabilities against the last run's, unless another model or method was meant to read."""
        before, self._before = self._before, outcome
        if before is None or before.fingerprint != outcome.fingerprint:
            return
        drift = _largest_difference(before.decision, outcome.decision)
        if drift > LARGEST_DRIFT:
            self._metrics.canary_drifts.inc()
            log.warning("the canary's answers moved by %.2f since its last run", drift)

    def _stands(self, outcome: str, message: str, bug: Exception | None = None) -> None:
        """Count a run, and say what came of it where that changed."""
        self._metrics.canary_runs.labels(outcome).inc()
        if outcome != self._standing:
            log.log(logging.INFO if outcome == "right" else logging.WARNING, message, exc_info=bug)
        self._standing = outcome


def _says(decision: Decision, name: str, key: str) -> bool:
    answer = decision.answers[name]
    return isinstance(answer, Answer) and answer.status == "decided" and answer.key == key


def _largest_difference(one: Decision, other: Decision) -> float:
    """Return how far apart they put the probability of any option that both were asked for."""
    pairs = [(one.answers[name], other.answers[name]) for name in one.answers]
    return max(
        (
            abs(a - b)
            for before, now in pairs
            if isinstance(before, Answer) and isinstance(now, Answer)
            for a, b in zip(before.distribution.probabilities, now.distribution.probabilities, strict=True)
        ),
        default=0.0,
    )
