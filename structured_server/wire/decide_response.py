"""The response of `POST /decide`: its documented types.

Answers are written as plain objects for speed; these types make the OpenAPI document, and a test holds
every rendered answer against them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
