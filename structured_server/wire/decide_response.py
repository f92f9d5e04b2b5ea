"""The response of `POST /decide`: its documented types, and how a decision becomes it.

Answers are written as plain objects for speed; the types here make the OpenAPI document, and a test holds
every rendered answer against them. Numbers are never rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import structured_server
from structured_server.core.answers import Answer, Reason, Skipped
from structured_server.core.decision import Decision
from structured_server.core.distribution import choice_confidence, score_confidence
from structured_server.core.policy import Calibration
from structured_server.core.provenance import METHOD
from structured_server.core.questions import Noul, Score
from structured_server.core.reads import Thought
from structured_server.driver import Outcome
from structured_server.errors import StructuredServerError


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Noise(_Out):
    """What the draws tell about slot noise, and nothing else; about the answer's headline number."""

    draws: int = Field(description="Draws that were averaged.")
    agreement: float = Field(description="Share of draws that come to the same answer.")
    standard_error: float | None = Field(description="Of the headline number; null with one draw.")
    interval_95: tuple[float, float] | None = Field(description="Student's t interval; null with one draw.")
    first_entropy: float = Field(
        description="Entropy of the first draw in nats, before any temperature: what `auto` looked at."
    )
    orders: int | None = Field(None, description="With `rotate`: in how many orders the options were read.")
    order_spread: float | None = Field(
        None, description="With `rotate`: the largest range of an option's probability over the draws."
    )


class ReasonOut(_Out):
    """Why a question was not decided."""

    code: str
    value: float | str | None
    limit: float | list[str]
    question: str | None = Field(None, description="The question whose answer was waited for.")


class _AnswerOut(_Out):
    status: Literal["decided", "abstained"]
    reasons: list[ReasonOut] | None = Field(None, description="Present where status is abstained.")
    probabilities: dict[str, float]
    top_probability: float
    entropy: float = Field(description="In nats.")
    normalized_entropy: float = Field(description="Entropy over ln K: 0 certain, 1 uniform.")
    label_mass: float | None = Field(description="The labels' share of the vocabulary's probability.")
    noise: Noise


class NoulAnswer(_AnswerOut):
    """A yes/no question's answer."""

    type: Literal["noul"]
    answer: bool | None = Field(description="Null unless decided.")
    noul: float = Field(description="The probability of yes.")
    threshold: float


class ChoiceAnswer(_AnswerOut):
    """A choice's answer."""

    type: Literal["choice"]
    answer: str | None = Field(description="Null unless decided.")
    choice: str = Field(description="The most probable option.")
    confidence: float = Field(description="(max - 1/n) / (1 - 1/n).")


class ScoreAnswer(_AnswerOut):
    """A score's answer."""

    type: Literal["score"]
    answer: int | None = Field(description="The level's index; null unless decided.")
    score: float = Field(description="The mean level index.")
    score_base: Literal[0]
    level: int = Field(description="The most probable level's index.")
    legend: dict[str, str]
    confidence: float = Field(description="1 - E|i - mode| / D, D the spread of a uniform reading.")


class SkippedAnswer(_Out):
    """A question that was not asked: the answer that it waited for did not come."""

    type: Literal["noul", "choice", "score"]
    status: Literal["skipped"]
    answer: None
    reasons: list[ReasonOut]


AnswerOut = NoulAnswer | ChoiceAnswer | ScoreAnswer | SkippedAnswer


class Usage(_Out):
    """Tokens."""

    input_tokens: int = Field(description="Each group's prompt, counted once.")
    output_tokens: int = Field(description="One for each question.")
    engine_input_tokens: int = Field(description="Prompt tokens over all reads: what the engine saw.")
    cached_input_tokens: int | None = Field(description="Of those, from its prefix cache; null if unknown.")


class ThoughtOut(_Out):
    """What the model wrote in its thought channel before it was read."""

    questions: list[str] = Field(description="The questions that it was about.")
    text: str
    tokens: int
    closed: bool = Field(description="Whether it came to an end by itself.")
    milliseconds: float


class Reading(_Out):
    """How the questions were read."""

    reads: int
    extended: bool
    extended_by: list[str] = Field(description="The questions whose uncertainty made more draws.")
    groups: list[list[str]] = Field(description="Questions that shared a canvas.")
    stages: list[list[str]] = Field(description="Questions by the stage in which their turn came.")
    shared: bool = Field(description="Whether an equal request in flight lent its reads.")
    thoughts: list[ThoughtOut]
    isolate: Literal["none", "noul", "all"]
    layout: str
    template: str
    canvas_width: int = Field(description="The widest canvas, in tokens.")
    aliases: dict[str, dict[str, str]] = Field(description="By question: the label that stood for an option.")
    state_tokens: int
    state_tokens_used: int


class ByTypeOut(_Out):
    """A number for each type of question."""

    noul: float
    choice: float
    score: float


class CalibrationOut(_Out):
    """The fitted policy that the server was given, and what of it was applied."""

    policy: str
    temperatures: ByTypeOut | None = Field(description="Null where none were applied.")
    fingerprint_match: bool = Field(description="Whether it was fitted for such decisions.")


class Provenance(_Out):
    """What must be equal for numbers to be comparable."""

    server: str
    backend: str
    method: str
    model_revision: str | None
    question_set: str
    fingerprint: str = Field(description="Covers all that moves numbers.")


class WarningOut(_Out):
    """Something to know about an answer, or about all of them."""

    code: str
    message: str
    question: str | None = None


class Timings(_Out):
    """Milliseconds."""

    queue: float
    engine: float
    total: float


class DecideResponse(_Out):
    """One distribution for each question, with what it took to get them."""

    id: str
    model: str
    answers: dict[str, AnswerOut]
    undecided: list[str]
    usage: Usage
    reading: Reading
    calibration: CalibrationOut | None
    provenance: Provenance
    warnings: list[WarningOut]
    timings_ms: Timings
    metadata: dict[str, str]


class ErrorDetail(_Out):
    """What was wrong, where, and what would be right."""

    code: str
    message: str
    path: list[str | int]
    hint: str | None
    retryable: bool
    request_id: str


class ErrorResponse(_Out):
    """An error."""

    error: ErrorDetail


def render(
    outcome: Outcome,
    *,
    identifier: str,
    model: str,
    backend: str,
    model_revision: str | None,
    metadata: Mapping[str, str],
) -> dict[str, Any]:
    """Return the body of a 200, in the shape of `DecideResponse`."""
    decision = outcome.decision
    options = decision.plan.options
    return {
        "id": identifier,
        "model": model,
        "answers": {name: _answer(answer) for name, answer in decision.answers.items()},
        "undecided": [name for name, answer in decision.answers.items() if answer.status == "abstained"],
        "usage": _usage(decision),
        "reading": {
            "reads": len(decision.reads),
            "extended": bool(decision.extended_by),
            "extended_by": list(decision.extended_by),
            "groups": [list(group.identifiers) for group in decision.plan.groups],
            "stages": [
                [name for group in stage for name in group.identifiers] for stage in decision.plan.stages
            ],
            "shared": outcome.shared,
            "thoughts": [_thought(names, thought) for names, thought in decision.thoughts],
            "isolate": decision.plan.isolated,
            "layout": options.layout,
            "template": options.template,
            "canvas_width": max(group.canvas.width for group in decision.plan.groups),
            "aliases": {
                name: asked.aliases
                for group in decision.plan.groups
                for name, asked in zip(group.identifiers, group.asked, strict=True)
                if asked.aliases
            },
            "state_tokens": outcome.state_tokens,
            "state_tokens_used": outcome.state_tokens_used,
        },
        "calibration": _calibration(decision.calibration),
        "provenance": {
            "server": structured_server.__version__,
            "backend": backend,
            "method": METHOD,
            "model_revision": model_revision,
            "question_set": outcome.question_set,
            "fingerprint": outcome.fingerprint,
        },
        "warnings": [
            {key: value for key, value in asdict(warning).items() if value is not None}
            for warning in decision.warnings
        ],
        "timings_ms": {"queue": outcome.queue_ms, "engine": outcome.engine_ms, "total": outcome.total_ms},
        "metadata": dict(metadata),
    }


def render_error(error: StructuredServerError, request_id: str) -> dict[str, Any]:
    """Return the body of an error, in the shape of `ErrorResponse`."""
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "path": list(error.path),
            "hint": error.hint,
            "retryable": error.retryable,
            "request_id": request_id,
        }
    }


def _thought(questions: tuple[str, ...], thought: Thought) -> dict[str, Any]:
    return {
        "questions": list(questions),
        "text": thought.text,
        "tokens": len(thought.ids),
        "closed": thought.closed,
        "milliseconds": 1000 * thought.seconds,
    }


def _calibration(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    temperatures = calibration.policy.temperatures if calibration.fingerprint_match else None
    return {
        "policy": calibration.policy.name,
        "temperatures": asdict(temperatures) if temperatures else None,
        "fingerprint_match": calibration.fingerprint_match,
    }


def _reason(reason: Reason) -> dict[str, Any]:
    body: dict[str, Any] = {"code": reason.code, "value": reason.value, "limit": reason.limit}
    return body if reason.question is None else body | {"question": reason.question}


def _answer(answer: Answer | Skipped) -> dict[str, Any]:
    if isinstance(answer, Skipped):
        return {
            "type": answer.question.kind,
            "status": answer.status,
            "answer": None,
            "reasons": [_reason(answer.reason)],
        }
    question, reading = answer.question, answer.distribution
    decided = not answer.reasons
    body: dict[str, Any] = {"type": question.kind, "status": answer.status}
    if isinstance(question, Noul):
        body["answer"] = answer.option == 0 if decided else None
        body["noul"] = answer.headline
        body["threshold"] = question.threshold
    elif isinstance(question, Score):
        body["answer"] = reading.mode if decided else None
        body["score"] = answer.headline
        body["score_base"] = 0
        body["level"] = reading.mode
        body["legend"] = {
            option.key: level for option, level in zip(question.options, question.levels, strict=True)
        }
        body["confidence"] = score_confidence(reading.probabilities)
    else:
        chosen = question.options[reading.mode].key
        body["answer"] = chosen if decided else None
        body["choice"] = chosen
        body["confidence"] = choice_confidence(reading.probabilities)
    if answer.reasons:
        body["reasons"] = [_reason(reason) for reason in answer.reasons]
    body["probabilities"] = {
        option.key: p for option, p in zip(question.options, reading.probabilities, strict=True)
    }
    body["top_probability"] = reading.top_probability
    body["entropy"] = reading.entropy
    body["normalized_entropy"] = reading.normalized_entropy
    body["label_mass"] = reading.label_mass
    body["noise"] = {
        "draws": answer.draws,
        "agreement": answer.agreement,
        "standard_error": answer.standard_error,
        "interval_95": list(answer.interval_95) if answer.interval_95 else None,
        "first_entropy": answer.first_entropy,
    }
    if answer.order_spread is not None:
        body["noise"] |= {"orders": answer.orders, "order_spread": answer.order_spread}
    return body


def _usage(decision: Decision) -> dict[str, Any]:
    cached = [read.cached_tokens for read in decision.reads]
    return {
        "input_tokens": sum(reading.reads[0].prompt_tokens for reading in decision.readings),
        "output_tokens": sum(len(reading.group.identifiers) for reading in decision.readings)
        + sum(len(thought.ids) for _, thought in decision.thoughts),
        "engine_input_tokens": sum(read.prompt_tokens for read in decision.reads),
        "cached_input_tokens": None if None in cached else sum(filter(None, cached)),
    }
