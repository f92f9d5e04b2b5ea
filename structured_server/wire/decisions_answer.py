"""OpenAI's Decisions: the response. What is ours stands under a name that begins with x_.

Answers are written as plain objects for speed; the types make the OpenAPI document, and a test holds every
rendered answer against them. Numbers are never rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from structured_server.core.answers import Answer
from structured_server.core.distribution import choice_confidence, score_confidence
from structured_server.driver import Outcome
from structured_server.wire.decide_rendering import particulars, reading_of, usage_of
from structured_server.wire.decisions import ChoiceQuestion, PredicateQuestion, ScoreQuestion
from structured_server.wire.systemone_answer import DecisionOut, ReadingOut


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _AnswerOut(_Out):
    name: str | None = Field(description="The question's name; null where it has none.")
    x_reading: ReadingOut


class PredicateAnswer(_AnswerOut):
    """How probable a statement is."""

    type: Literal["predicate"]
    probability: float


class ValueProbability(_Out):
    """An option's probability."""

    value: StrictStr | StrictBool
    probability: float


class DecisionsChoiceAnswer(_AnswerOut):
    """A choice's answer."""

    type: Literal["choice"]
    choice: StrictStr | StrictBool
    confidence: float = Field(description="(max - 1/n) / (1 - 1/n).")
    probabilities: list[ValueProbability]


class LevelProbability(_Out):
    """A level's probability."""

    value: int
    label: str
    probability: float


class DecisionsScoreAnswer(_AnswerOut):
    """A score's answer."""

    type: Literal["score"]
    score: float = Field(description="The mean level index, from 0.")
    confidence: float = Field(description="max(0, 1 - E|i - mode| / D), D the spread of a uniform reading.")
    probabilities: list[LevelProbability]


class InputDetails(_Out):
    """Of the input tokens."""

    cached_tokens: int
    cache_write_tokens: Literal[0]


class OutputDetails(_Out):
    """Of the output tokens."""

    reasoning_tokens: int


class DecisionsUsage(_Out):
    """Tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class DecisionsResponse(_Out):
    """One answer for each question, in their order."""

    model: str
    answers: list[PredicateAnswer | DecisionsChoiceAnswer | DecisionsScoreAnswer]
    usage: DecisionsUsage
    x_decision: DecisionOut


def render(
    outcome: Outcome,
    questions: Sequence[PredicateQuestion | ChoiceQuestion | ScoreQuestion],
    *,
    identifier: str,
    model: str,
    backend: str,
    model_revision: str | None,
) -> dict[str, Any]:
    """Return the body of a 200, in the shape of `DecisionsResponse`."""
    answers = outcome.decision.answers
    return {
        "model": model,
        "answers": [_answer(given, answers[str(index)]) for index, given in enumerate(questions)],
        "usage": _usage(outcome),
        "x_decision": particulars(
            outcome, identifier=identifier, backend=backend, model_revision=model_revision
        ),
    }


def _answer(given: PredicateQuestion | ChoiceQuestion | ScoreQuestion, answer: Any) -> dict[str, Any]:
    assert isinstance(answer, Answer), "no question here waits for another, so none is skipped"
    body: dict[str, Any] = {"type": given.type, "name": given.name}
    probabilities = answer.distribution.probabilities
    if isinstance(given, PredicateQuestion):
        body["probability"] = answer.headline
    elif isinstance(given, ChoiceQuestion):
        body["choice"] = given.choices[answer.distribution.mode].value
        body["confidence"] = choice_confidence(probabilities)
        body["probabilities"] = [
            {"value": each.value, "probability": p}
            for each, p in zip(given.choices, probabilities, strict=True)
        ]
    else:
        body["score"] = answer.headline
        body["confidence"] = score_confidence(probabilities)
        body["probabilities"] = [
            {"value": index, "label": each.label, "probability": p}
            for index, (each, p) in enumerate(zip(given.levels, probabilities, strict=True))
        ]
    body["x_reading"] = reading_of(answer)
    return body


def _usage(outcome: Outcome) -> dict[str, Any]:
    counted = usage_of(outcome.decision)
    thought = sum(len(thought.ids) for _, thought in outcome.decision.thoughts)
    return {
        "input_tokens": counted["input_tokens"],
        "input_tokens_details": {
            # Of the same reads that count as input: the first of each group.
            "cached_tokens": sum(
                reading.reads[0].cached_tokens or 0 for reading in outcome.decision.readings
            ),
            "cache_write_tokens": 0,
        },
        "output_tokens": counted["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": counted["input_tokens"] + counted["output_tokens"],
    }
