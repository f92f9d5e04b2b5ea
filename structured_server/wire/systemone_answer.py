"""TypeSafe's System One: the response. What is ours stands under names that begin with x_.

Answers are written as plain objects for speed; the types make the OpenAPI document, and a test holds every
rendered answer against them. Numbers are never rounded.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from structured_server.core.answers import Answer, Skipped
from structured_server.core.distribution import choice_confidence, score_confidence
from structured_server.core.questions import Noul, Score
from structured_server.driver import Outcome
from structured_server.wire.decide_rendering import particulars, reading_of, reason_of, usage_of
from structured_server.wire.decide_response import (
    CalibrationOut,
    Noise,
    Provenance,
    Reading,
    ReasonOut,
    Timings,
    WarningOut,
)


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReadingOut(_Out):
    """What an answer's distribution and its draws are described by."""

    top_probability: float
    entropy: float = Field(description="In nats.")
    normalized_entropy: float = Field(description="Entropy over ln K: 0 certain, 1 uniform.")
    label_mass: float | None = Field(description="The labels' share of the vocabulary's probability.")
    noise: Noise


class SystemOneNoulAnswer(_Out):
    """A yes/no question's answer."""

    type: Literal["noul"]
    noul: float = Field(description="The probability of yes.")
    x_reading: ReadingOut


class SystemOneChoiceAnswer(_Out):
    """A choice's answer."""

    type: Literal["choice"]
    choice: str = Field(description="The most probable option.")
    confidence: float = Field(description="(max - 1/n) / (1 - 1/n).")
    probabilities: dict[str, float]
    x_reading: ReadingOut


class SystemOneScoreAnswer(_Out):
    """A score's answer."""

    type: Literal["score"]
    score: float = Field(description="The mean level index, from 0.")
    confidence: float = Field(description="max(0, 1 - E|i - mode| / D), D the spread of a uniform reading.")
    legend: dict[str, str]
    probabilities: dict[str, float]
    x_reading: ReadingOut


class SystemOneUsage(_Out):
    """Tokens."""

    input_tokens: int = Field(description="Each read's prompt, counted once.")
    output_tokens: int = Field(description="One for each question.")


class DecisionOut(_Out):
    """How the answers came to be."""

    id: str
    undecided: list[str]
    reading: Reading
    calibration: CalibrationOut | None
    provenance: Provenance
    warnings: list[WarningOut]
    timings_ms: Timings


class SystemOneDecision(DecisionOut):
    """How the answers came to be, and why there is none where there is none."""

    skipped: dict[str, ReasonOut] = Field(description="By question: the answer that it waited for.")


class SystemOneResponse(_Out):
    """One answer for each question; null for one that was not asked because of its `ask_if`."""

    model: str
    answers: dict[str, SystemOneNoulAnswer | SystemOneChoiceAnswer | SystemOneScoreAnswer | None]
    usage: SystemOneUsage
    x_decision: SystemOneDecision


def render(
    outcome: Outcome, *, identifier: str, model: str, backend: str, model_revision: str | None
) -> dict[str, Any]:
    """Return the body of a 200, in the shape of `SystemOneResponse`."""
    decision = outcome.decision
    usage = usage_of(decision)
    return {
        "model": model,
        "answers": {name: _answer(answer) for name, answer in decision.answers.items()},
        "usage": {"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]},
        "x_decision": {
            **particulars(outcome, identifier=identifier, backend=backend, model_revision=model_revision),
            "skipped": {
                name: reason_of(answer.reason)
                for name, answer in decision.answers.items()
                if isinstance(answer, Skipped)
            },
        },
    }


def _answer(answer: Answer | Skipped) -> dict[str, Any] | None:
    if isinstance(answer, Skipped):
        return None
    question, reading = answer.question, answer.distribution
    if isinstance(question, Noul):
        return {"type": "noul", "noul": answer.headline, "x_reading": reading_of(answer)}
    probabilities = {option.key: p for option, p in zip(question.options, reading.probabilities, strict=True)}
    if isinstance(question, Score):
        return {
            "type": "score",
            "score": answer.headline,
            "confidence": score_confidence(reading.probabilities),
            "legend": {
                option.key: level for option, level in zip(question.options, question.levels, strict=True)
            },
            "probabilities": probabilities,
            "x_reading": reading_of(answer),
        }
    return {
        "type": "choice",
        "choice": question.options[reading.mode].key,
        "confidence": choice_confidence(reading.probabilities),
        "probabilities": probabilities,
        "x_reading": reading_of(answer),
    }
