"""Typed answers. What a newer server says beyond them is kept, as attributes of the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structured_server.client.errors import UnexpectedReply

T = TypeVar("T")


class _Said(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Noise(_Said):
    """What the draws tell about slot noise, and nothing else; about the answer's headline number."""

    draws: int
    agreement: float
    standard_error: float | None = None
    interval_95: tuple[float, float] | None = None


class Reason(_Said):
    """Why a question was not decided."""

    code: str
    value: float | str | None = None
    limit: float | list[str] | None = None
    question: str | None = None


class _Answer(_Said):
    """`answer` is what code may act on: None unless `status` is decided.

    A skipped question has none of the numbers, nor have the numbers that a dialect does not speak of.
    """

    status: Literal["decided", "abstained", "skipped"] = "decided"
    reasons: tuple[Reason, ...] = ()
    probabilities: dict[str, float] = {}
    top_probability: float | None = None
    entropy: float | None = None  # nats
    normalized_entropy: float | None = None
    label_mass: float | None = None
    noise: Noise | None = None


class NoulAnswer(_Answer):
    """A yes/no question's answer; `noul` is the probability of yes."""

    type: Literal["noul"]
    answer: bool | None = None
    noul: float | None = None
    threshold: float | None = None


class ChoiceAnswer(_Answer):
    """A choice's answer; `choice` is the most probable option."""

    type: Literal["choice"]
    answer: str | None = None
    choice: str | None = None
    confidence: float | None = None


class ScoreAnswer(_Answer):
    """A score's answer, the level's index; `score` is the mean level index."""

    type: Literal["score"]
    answer: int | None = None
    score: float | None = None
    level: int | None = None
    legend: dict[str, str] = {}
    confidence: float | None = None


Answer = Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]


class Usage(_Said):
    """Tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    engine_input_tokens: int | None = None
    cached_input_tokens: int | None = None


class Reading(_Said):
    """How the questions were read."""

    reads: int
    extended: bool
    extended_by: tuple[str, ...] = ()


class Provenance(_Said):
    """What must be equal for numbers to be comparable."""

    question_set: str
    fingerprint: str


class Warned(_Said):
    """Something to know about an answer, or about all of them."""

    code: str
    message: str
    question: str | None = None


class Reply(_Said):
    """The body of a 200."""

    model: str
    answers: dict[str, Answer]
    id: str | None = None
    undecided: tuple[str, ...] = ()
    usage: Usage = Usage()
    reading: Reading | None = None
    provenance: Provenance | None = None
    warnings: tuple[Warned, ...] = ()
    metadata: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """All answers, by question id.

    Where a model was the question set, `value` is that model filled with the answers, None where a field that
    must have one is undecided. `raw` is the reply as it came.
    """

    reply: Reply
    value: T
    raw: Mapping[str, Any]

    @property
    def answers(self) -> dict[str, Answer]:
        """The answers by question id."""
        return self.reply.answers

    @property
    def undecided(self) -> tuple[str, ...]:
        """The questions that were asked and have no answer that code may act on."""
        return self.reply.undecided

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What to know about the answers."""
        return self.reply.warnings


def read_reply(raw: Mapping[str, Any]) -> Reply:
    """Return a reply's types.

    Raises:
        UnexpectedReply: it is none.
    """
    try:
        return Reply.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UnexpectedReply(f"the reply is no decision: {where}: {first['msg']}.", 200) from None
