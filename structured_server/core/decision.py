"""The decision: what the groups' readings come to, together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from structured_server.core.answers import Answer, Answers, DecisionWarning, warnings_about
from structured_server.core.plan import Plan
from structured_server.core.policy import Calibration
from structured_server.core.reading import LARGEST_DRIFT, GroupReading
from structured_server.core.reads import Read, Thought


@dataclass(frozen=True, slots=True)
class Decision:
    """All answers, by question id in the caller's order, with what it took to get them."""

    answers: Answers
    plan: Plan
    readings: tuple[GroupReading, ...]
    warnings: tuple[DecisionWarning, ...]
    calibration: Calibration | None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """Every read that was made."""
        return tuple(read for reading in self.readings for read in reading.reads)

    @property
    def extended_by(self) -> tuple[str, ...]:
        """The questions whose uncertainty made more draws."""
        return tuple(name for r in self.readings if r.skipped is None for name in r.extended_by)

    @property
    def thoughts(self) -> tuple[tuple[tuple[str, ...], Thought], ...]:
        """What the model thought before it was read, with the questions that it was about."""
        return tuple((r.group.identifiers, r.job.thought) for r in self.readings if r.job.thought)


def conclude(
    plan: Plan,
    readings: Iterable[GroupReading],
    answers: Answers,
    token_text: Callable[[int], str],
    caveats: Iterable[DecisionWarning] = (),
    *,
    calibration: Calibration | None = None,
) -> Decision:
    """Put the groups' readings and answers together, in the caller's order.

    `token_text` tells what a token reads as, for the warning that the model preferred another one. The
    `caveats` are warnings that hold whatever was read.
    """
    readings = tuple(readings)
    warnings = [*caveats]
    if calibration is not None and not calibration.fingerprint_match:
        warnings.append(
            DecisionWarning(
                "policy_mismatch",
                f"The policy {calibration.policy.name} was fitted for other decisions "
                f"({calibration.policy.fingerprint}); nothing of it was applied.",
            )
        )
    for reading in readings:
        warnings += _warnings_about_reading(reading)
        for index, (name, asked) in enumerate(
            zip(reading.group.identifiers, reading.group.asked, strict=True)
        ):
            answer = answers[name]
            assert isinstance(answer, Answer), "a question that was read has an answer"
            warnings += warnings_about(name, asked, answer, reading.preferred[index], token_text)
    in_order = {name: answers[name] for name, _ in plan.schema.questions}
    return Decision(in_order, plan, readings, tuple(warnings), calibration)


def _warnings_about_reading(reading: GroupReading) -> Iterable[DecisionWarning]:
    if reading.skipped is not None:
        yield DecisionWarning(
            "extra_reads_skipped", f"The answer rests on one draw: {reading.skipped.reason}."
        )
    if reading.drift > LARGEST_DRIFT:
        yield DecisionWarning(
            "label_sets_drift",
            f"Reads of this question's label sets were {reading.drift:.2g} nats apart, also when repeated: "
            "its options are not on one scale.",
            reading.group.identifiers[0],
        )
