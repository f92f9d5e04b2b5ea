"""The request of `POST /decide`: types at the wire, and what they become inside.

A superset of System One's request, except that unknown fields are refused, with the nearest known one named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from structured_server.core.conditions import UNCONDITIONAL, Conditions
from structured_server.core.plan import Isolate, ReadOptions, located
from structured_server.core.policy import ByType, ReadPolicy
from structured_server.core.prompt import Layout
from structured_server.core.questions import NO_LIMITS, Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.reads import Image
from structured_server.core.state import LongState
from structured_server.core.template import Keys, TemplateStyle
from structured_server.errors import InvalidQuestion, InvalidRequest
from structured_server.wire.fields import (
    ANSWERS,
    LEVELS,
    MAX_IMAGES,
    MAX_STEPS,
    MAX_THOUGHT,
    MOST_READS,
    OPTION_NAMES,
    QUESTION_IDS,
    SAYS_WHAT_IS_ASKED,
    WHOLE,
    AnswerWord,
    Deadline,
    Level,
    Samples,
    State,
    Text,
    Whole,
    text_of,
    text_of_state,
    text_or_none,
)
from structured_server.wire.images import image_of
from structured_server.wire.validation import BY_TYPE, SAME

HIGHEST_TEMPERATURE = 100.0

Aliases = dict[str, str]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class AbstainIn(_Strict):
    """Limits beyond which a question is not decided."""

    min_top_probability: float | None = Field(None, ge=0, le=1)
    max_normalized_entropy: float | None = Field(None, ge=0, le=1)
    min_label_mass: float | None = Field(None, ge=0, le=1)


class _QuestionIn(_Strict):
    instructions: Text = Field(None, description="What is asked.")
    abstain: AbstainIn = Field(AbstainIn(), description="When to abstain.")
    aliases: Aliases = Field(
        default_factory=dict,
        description="A label of your own for an option: a single token. Keys are those of `probabilities`.",
    )
    depends_on: list[str] = Field(
        default_factory=list,
        description="Questions to answer first; the model sees their answers.",
    )
    ask_if: dict[str, Annotated[list[AnswerWord], Field(json_schema_extra=ANSWERS)]] = Field(
        default_factory=dict,
        description="Ask only where each of these questions, which are answered first, has such an answer.",
    )
    alone: bool = Field(False, description="Read this question apart from all others.")


class NoulCriteria(_Strict):
    """What yes and no mean."""

    true: Text = None
    false: Text = None


class NoulIn(_QuestionIn):
    """A yes/no question."""

    model_config = ConfigDict(json_schema_extra=SAYS_WHAT_IS_ASKED)

    type: Literal["noul", "binary", "bool"]
    criteria: NoulCriteria | None = None
    threshold: float = Field(0.5, ge=0, le=1, description="The answer is yes from this probability up.")


class ChoiceIn(_QuestionIn):
    """One of several options."""

    type: Literal["choice"]
    criteria: dict[str, Text] = Field(
        description="Each option's name, with what it means or null.", json_schema_extra=OPTION_NAMES
    )


class ScoreIn(_QuestionIn):
    """A rubric of levels, from the lowest."""

    type: Literal["score"]
    criteria: list[Level] = Field(
        description="The levels, from the lowest to the highest.", json_schema_extra=LEVELS
    )


QuestionIn = Annotated[NoulIn | ChoiceIn | ScoreIn, Field(discriminator="type")]


class ByTypeIn(_Strict):
    """A number for each type of question; those left out keep the default."""

    noul: float | None = Field(None, ge=0)
    choice: float | None = Field(None, ge=0)
    score: float | None = Field(None, ge=0)


class TemperaturesIn(ByTypeIn):
    """A temperature for each type of question; those left out keep the default."""

    noul: float | None = Field(None, gt=0, le=HIGHEST_TEMPERATURE)
    choice: float | None = Field(None, gt=0, le=HIGHEST_TEMPERATURE)
    score: float | None = Field(None, gt=0, le=HIGHEST_TEMPERATURE)


def _numbers(given: Any) -> str:
    return BY_TYPE if isinstance(given, dict | ByTypeIn) else SAME


class ReadIn(_Strict):
    """How to read."""

    samples: Samples = Field(
        "auto",
        description="Draws to average; auto takes one, and three more where any question is uncertain.",
    )
    entropy_threshold: (
        Annotated[
            Annotated[float, Field(ge=0), Tag(SAME)] | Annotated[ByTypeIn, Tag(BY_TYPE)],
            Discriminator(_numbers),
        ]
        | None
    ) = Field(
        None,
        description="For auto: the entropy in nats above which a question is uncertain; a number, or one by "
        "type. Default 0.1.",
    )
    max_reads: Annotated[int, Field(ge=1, le=MOST_READS), WHOLE] | None = Field(
        None, description="Reads that this decision may take. Default 64, or one draw."
    )
    temperature: (
        Annotated[
            Annotated[float, Field(gt=0, le=HIGHEST_TEMPERATURE), Tag(SAME)]
            | Annotated[TemperaturesIn, Tag(BY_TYPE)],
            Discriminator(_numbers),
        ]
        | None
    ) = Field(
        None,
        description="Divides log-probabilities before draws are averaged: a number, or one by type.",
    )
    rotate: bool = Field(False, description="List the options in another cyclic order in each further draw.")
    steps: Whole = Field(1, ge=1, le=MAX_STEPS, description="Denoise steps of a read.")
    constrained: bool = Field(
        False, description="Let the engine normalise over the labels alone: quicker, but no label mass."
    )
    think: Whole = Field(
        0, ge=0, le=MAX_THOUGHT, description="Tokens that the model may think before it is read."
    )
    long_state: LongState = Field(
        "reject",
        description="A state that does not fit: refuse it, keep its head or its tail, or cut out its middle.",
    )
    require_draws: bool = Field(
        False, description="Fail where draws that were wanted could not be made, instead of saying so."
    )
    isolate: Isolate = Field("none", description="Which questions are read apart from the others.")
    layout: Layout = Field("schema_first", description="Questions before the state, or after it.")
    template: TemplateStyle = Field("json", description="The answer text that is seeded.")
    keys: Keys = Field("auto", description="How the answer text names questions.")
    seed: Whole = Field(
        0, description="Moves the noise. The same seed, state and questions give the same reads."
    )


Metadata = dict[
    Annotated[str, StringConstraints(min_length=1, max_length=64)],
    Annotated[str, StringConstraints(max_length=512)],
]


class Asking(_Strict):
    """Typed questions, and how to read them."""

    questions: dict[str, QuestionIn] = Field(
        min_length=1, description="The questions by id.", json_schema_extra=QUESTION_IDS
    )
    model: str | None = Field(None, description="The served model's name; may be left out.")
    read: ReadIn = Field(ReadIn(), description="How to read.")
    deadline_ms: Deadline | None = Field(None, description="Answer or fail within this time. Default 8000.")

    @property
    def seed(self) -> int:
        """What moves the noise."""
        return self.read.seed

    @property
    def long_state(self) -> LongState:
        """What is done with a state that does not fit."""
        return self.read.long_state

    @property
    def require_draws(self) -> bool:
        """Whether to fail where draws that were wanted could not be made."""
        return self.read.require_draws

    def schema_of_questions(self) -> Schema:
        """Return the questions as the core knows them.

        Raises:
            InvalidRequest: a question breaks one of its invariants; the path is the request's.
        """
        return Schema(tuple((name, _question(name, given)) for name, given in self.questions.items()))

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's."""
        read = self.read
        return replace(
            defaults,
            layout=read.layout,
            template=read.template,
            keys=read.keys,
            isolate=read.isolate,
            rotate=read.rotate,
            steps=read.steps,
            constrained=read.constrained,
            think=read.think,
        )

    def read_policy(self, defaults: ReadPolicy) -> ReadPolicy:
        """Return the request's policy over the server's."""
        read = self.read
        return replace(
            defaults,
            samples=read.samples,
            entropy_thresholds=_by_type(read.entropy_threshold, defaults.entropy_thresholds),
            max_reads=read.max_reads,
            temperatures=_by_type(read.temperature, defaults.temperatures),
        )


class DecideRequest(Asking):
    """A state and typed questions about it."""

    state: State = Field(description="What the questions are about: text or JSON.")
    images: list[str] = Field(
        default_factory=list,
        max_length=MAX_IMAGES,
        description="Images that belong to the state, as data URLs. Parts of a multipart body follow them.",
    )
    metadata: Metadata = Field(
        default_factory=dict,
        max_length=16,
        description="Echoed and logged; never shown to the model, never part of the seed.",
    )

    def state_text(self) -> str:
        """Return the state as the model is shown it: text as it is, JSON compact and unescaped.

        Raises:
            InvalidRequest: the JSON holds NaN, an infinity or an integer beyond what JSON text can carry.
        """
        return text_of_state(self.state, ("state",))

    def pictures(self, parts: Sequence[Image]) -> tuple[Image, ...]:
        """Return the images: those of the body, then those that came as parts.

        Raises:
            InvalidRequest: one is no image, or they are too many.
        """
        images = (*(image_of(given, index) for index, given in enumerate(self.images)), *parts)
        if len(images) > MAX_IMAGES:
            raise InvalidRequest(f"may be at most {MAX_IMAGES}, got {len(images)}.", path=("images",))
        return images


def _by_type(given: float | ByTypeIn | None, defaults: ByType) -> ByType:
    if given is None:
        return defaults
    if isinstance(given, ByTypeIn):
        return replace(defaults, **given.model_dump(exclude_none=True))
    return ByType.same(given)


def _question(name: str, given: NoulIn | ChoiceIn | ScoreIn) -> Question:
    try:
        return _core_question(given)
    except InvalidQuestion as error:
        raise located(error, name) from None


def _core_question(given: NoulIn | ChoiceIn | ScoreIn) -> Question:
    instructions = text_or_none(given.instructions, ("instructions",))
    limits = Limits(**given.abstain.model_dump()) if given.abstain.model_fields_set else NO_LIMITS
    aliases = tuple(sorted(given.aliases.items()))
    conditions = UNCONDITIONAL
    if given.depends_on or given.ask_if or given.alone:
        conditions = Conditions(
            tuple(given.depends_on),
            tuple((name, tuple(map(answer_key, answers))) for name, answers in given.ask_if.items()),
            given.alone,
        )
    if isinstance(given, NoulIn):
        criteria = given.criteria or NoulCriteria()
        return Noul(
            instructions,
            text_or_none(criteria.true, ("criteria", "true")),
            text_or_none(criteria.false, ("criteria", "false")),
            given.threshold,
            limits,
            aliases,
            conditions,
        )
    if isinstance(given, ChoiceIn):
        options = tuple(
            (name, text_or_none(text, ("criteria", name))) for name, text in given.criteria.items()
        )
        return Choice(instructions, options, limits, aliases, conditions)
    levels = tuple(text_of(level, ("criteria", index)) for index, level in enumerate(given.criteria))
    return Score(instructions, levels, limits, aliases, conditions)


def answer_key(answer: bool | int | str) -> str:
    """Return the key of the option that a word for it names."""
    return str(answer).lower() if isinstance(answer, bool) else str(answer)
