"""Three questions that share a canvas, and what a model may believe of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from structured_server.core.policy import ReadPolicy
from structured_server.core.questions import Choice, Noul, Score
from structured_server.core.reading import Batch, GroupReading, Reply, read_group
from tests.core.synthetic import drive, job, plan, saying, schema

URGENT = Noul("Is it urgent?")
TEAM = Choice("Whose is it?", (("compute", None), ("networking", None), ("billing", None)))
BAD = Score("How bad?", ("none", "low", "high"))
TRIAGE = schema(urgent=URGENT, team=TEAM, severity=BAD)
TRIAGE_PLAN = plan(TRIAGE)
[GROUP] = TRIAGE_PLAN.groups

Believed = Sequence[Sequence[float]]
CERTAIN: Believed = ((1.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
DOUBTFUL: Believed = ((1.0, 0.0), (0.3, 0.4, 0.3), (0.0, 0.0, 1.0))
AUTO = ReadPolicy()


def doubtful_then(extra: Callable[[Batch], Reply]) -> GroupReading:
    """Read the group with a doubtful first draw and this reply to the extra ones."""
    _, reading = drive(
        read_group(job(GROUP), AUTO),
        lambda batch: extra(batch) if batch.extra else [saying(GROUP, *DOUBTFUL)],
    )
    return reading
