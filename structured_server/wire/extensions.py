"""What vLLM's example server adds to System One's request: how to read, and which questions wait for which.

The names are that server's. What it clamps without a word is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from structured_server.core.conditions import Conditions
from structured_server.core.plan import Isolate, ReadOptions
from structured_server.core.policy import MAX_DRAWS, ByType, ReadPolicy
from structured_server.core.questions import Question, Schema, Score
from structured_server.core.state import LongState
from structured_server.errors import InvalidQuestion, InvalidRequest
from structured_server.wire.fields import (
    ANSWERS,
    MAX_STEPS,
    MAX_THOUGHT,
    MOST_READS,
    WHOLE,
    AnswerWord,
    Deadline,
    Samples,
    Text,
    Whole,
    text_or_none,
    whole,
)

FEWEST_ROWS = 8


class Lenient(BaseModel):
    """A part of a request whose unknown fields are ignored: clients of other servers send some."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


def _seed(value: Any) -> int:
    value = whole(value)
    if type(value) is int:
        return value
    raise PydanticCustomError("seed", "must be a whole number")


class Conditional(Lenient):
    """A question that may wait for others."""

    depends_on: list[str] = Field(
        default_factory=list, description="Questions to answer first; the model sees their answers."
    )
    ask_if: dict[str, Annotated[list[AnswerWord], Field(json_schema_extra=ANSWERS)]] = Field(
        default_factory=dict,
        description="Ask only where each of these questions has such an answer: yes or no, an option's name, "
        "a level's text or index.",
    )
    alone: bool = Field(False, description="Read this question apart from all others.")


class ReadingExtensions(Lenient):
    """How to read, in the names of vLLM's example server; and what is ours: see the fields."""

    samples: Samples = Field(
        "auto", description="Draws to average; auto takes one, and more where any question is uncertain."
    )
    auto_max: Whole = Field(4, ge=1, le=MAX_DRAWS, description="For auto: draws at most.")
    auto_threshold: float | None = Field(
        None, ge=0, description="For auto: the entropy in nats above which a question is uncertain."
    )
    steps: Whole = Field(1, ge=1, le=MAX_STEPS, description="Denoise steps of a read.")
    think: Whole = Field(
        0, ge=0, le=MAX_THOUGHT, description="Tokens that the model may think before it is read."
    )
    chunk_rows: Annotated[int, Field(ge=FEWEST_ROWS), WHOLE] | None = Field(
        None,
        description="Canvas positions that questions which are read together may take. Reads them together.",
    )
    sequential: bool = Field(
        False, description="Read canvas after canvas, each with the answers so far. Reads questions together."
    )
    seed: Annotated[int, PlainValidator(_seed), WithJsonSchema({"type": "integer"})] = Field(
        0, description="Moves the noise."
    )
    isolate: Isolate | None = Field(
        None,
        description="Which questions are read apart from the others. Default: the server's, which is all.",
    )
    long_state: LongState = Field(
        "reject",
        description="A state that does not fit: refuse it, keep its head or its tail, or cut out its middle.",
    )
    require_draws: bool = Field(
        False, description="Fail where draws that were wanted could not be made, instead of saying so."
    )
    deadline_ms: Deadline | None = Field(None, description="Answer or fail within this time. Default 8000.")

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's."""
        isolate = self.isolate
        if isolate is None:
            isolate = "none" if self.sequential or self.chunk_rows is not None else defaults.isolate
        return replace(
            defaults,
            isolate=isolate,
            steps=self.steps,
            think=self.think,
            rows=self.chunk_rows,
            sequential=self.sequential,
        )

    def read_policy(self, defaults: ReadPolicy) -> ReadPolicy:
        """Return the request's policy over the server's."""
        thresholds = defaults.entropy_thresholds
        if self.auto_threshold is not None:
            thresholds = ByType.same(self.auto_threshold)
        return replace(
            defaults,
            samples=self.samples,
            entropy_thresholds=thresholds,
            extra_draws=self.auto_max - 1,
            # Questions that are read apart soon come to more than the usual limit; no field here raises it.
            max_reads=None if self.samples == "auto" else MOST_READS,
        )


class Extensions(ReadingExtensions):
    """How to read, which questions to ask, and what they have in common."""

    instructions: Text = Field(None, description="What all questions have in common; the model sees it.")
    ask: list[str] | None = Field(None, min_length=1, description="Ask only these questions.")

    def schema_of(self, questions: Iterable[tuple[str, Question, Conditional]]) -> Schema:
        """Return those of the questions that are to be asked, with what they wait for.

        Raises:
            InvalidRequest: `ask` or a condition names what there is not, or questions wait for each other.
        """
        given = list(questions)
        if self.ask is not None:
            given = _picked(given, self.ask)
        by_name = {name: question for name, question, _ in given}
        waiting = tuple(
            (name, replace(question, conditions=_conditions(name, conditional, by_name)))
            for name, question, conditional in given
        )
        return Schema(waiting, text_or_none(self.instructions, ("instructions",)))


def _picked(
    given: Sequence[tuple[str, Question, Conditional]], wanted: Sequence[str]
) -> list[tuple[str, Question, Conditional]]:
    names = {name for name, _, _ in given}
    for index, name in enumerate(wanted):
        if name not in names:
            raise InvalidRequest("is no question of this request.", path=("ask", index))
    picked = [each for each in given if each[0] in wanted]
    for name, _, conditional in picked:
        for needed in (*conditional.depends_on, *conditional.ask_if):
            if needed in names and needed not in wanted:
                raise InvalidRequest(
                    f"names {name!r}, but not {needed!r}, which it waits for.", path=("ask",)
                )
    return picked


def _conditions(name: str, given: Conditional, questions: Mapping[str, Question]) -> Conditions:
    return Conditions(
        tuple(given.depends_on),
        tuple(
            (other, tuple(_key(questions.get(other), answer, (name, other)) for answer in answers))
            for other, answers in given.ask_if.items()
        ),
        given.alone,
    )


def _key(question: Question | None, answer: bool | int | str, path: tuple[str, str]) -> str:
    """Return the key of the option that an answer names. Level texts go before indices."""
    if question is None or (isinstance(question, Score) and isinstance(answer, bool)):
        return str(answer)  # refused with the other conditions
    if isinstance(answer, bool):
        return str(answer).lower()
    words = {option.word: option.key for option in question.options}
    keys = {option.key for option in question.options}
    if isinstance(answer, str) and answer in words:
        return words[answer]
    if str(answer) in keys:
        return str(answer)
    raise InvalidQuestion(
        "holds an answer that this question cannot have.", path=("questions", path[0], "ask_if", path[1])
    )
