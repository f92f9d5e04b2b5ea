"""The request of `POST /decide`: types at the wire, and what they become inside.

A superset of System One's request, except that unknown fields are refused, with the nearest known one named.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from structured_server.core.decision import MAX_DRAWS, ReadPolicy
from structured_server.core.plan import Isolate, ReadOptions, located
from structured_server.core.prompt import Layout
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.template import Keys, TemplateStyle
from structured_server.errors import InvalidQuestion, InvalidRequest

MAX_DEADLINE_MS = 600_000


def _text_like(value: Any) -> Any:
    if value is None or isinstance(value, str | dict | list):
        return value
    raise PydanticCustomError("text_like", "must be text, an object, an array or null")


def _state(value: Any) -> Any:
    if isinstance(value, str | dict | list):
        return value
    raise PydanticCustomError("state_type", "must be text, an object or an array")


def _samples(value: Any) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if type(value) is int and 1 <= value <= MAX_DRAWS:
        return value
    raise PydanticCustomError("samples", f'must be "auto" or a whole number from 1 to {MAX_DRAWS}')


_ANY_OF = [{"type": "string"}, {"type": "object"}, {"type": "array"}]
State = Annotated[Any, PlainValidator(_state), WithJsonSchema({"anyOf": _ANY_OF})]
Text = Annotated[Any, PlainValidator(_text_like), WithJsonSchema({"anyOf": [*_ANY_OF, {"type": "null"}]})]
Samples = Annotated[
    int | Literal["auto"],
    PlainValidator(_samples),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_DRAWS}]}),
]
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


class NoulCriteria(_Strict):
    """What yes and no mean."""

    true: Text = None
    false: Text = None


class NoulIn(_QuestionIn):
    """A yes/no question."""

    type: Literal["noul", "binary", "bool"]
    criteria: NoulCriteria | None = None
    threshold: float = Field(0.5, ge=0, le=1, description="The answer is yes from this probability up.")


class ChoiceIn(_QuestionIn):
    """One of several options."""

    type: Literal["choice"]
    criteria: dict[str, Text] = Field(description="Each option's name, with what it means or null.")


class ScoreIn(_QuestionIn):
    """A rubric of levels, from the lowest."""

    type: Literal["score"]
    criteria: list[Text] = Field(description="The levels, from the lowest to the highest.")


QuestionIn = Annotated[NoulIn | ChoiceIn | ScoreIn, Field(discriminator="type")]


class ReadIn(_Strict):
    """How to read."""

    samples: Samples = Field(
        "auto",
        description="Draws to average; auto takes one, and three more where any question is uncertain.",
    )
    entropy_threshold: float | None = Field(
        None,
        ge=0,
        description="For auto: the entropy in nats above which a question is uncertain. Default 0.1.",
    )
    isolate: Isolate = Field("none", description="Which questions are read apart from the others.")
    layout: Layout = Field("schema_first", description="Questions before the state, or after it.")
    template: TemplateStyle = Field("json", description="The answer text that is seeded.")
    keys: Keys = Field("auto", description="How the answer text names questions.")
    seed: int = Field(
        0, description="Moves the noise. The same seed, state and questions give the same reads."
    )


Metadata = dict[
    Annotated[str, StringConstraints(min_length=1, max_length=64)],
    Annotated[str, StringConstraints(max_length=512)],
]


class DecideRequest(_Strict):
    """A state and typed questions about it."""

    state: State = Field(description="What the questions are about: text or JSON.")
    questions: dict[str, QuestionIn] = Field(min_length=1, description="The questions by id.")
    model: str | None = Field(None, description="The served model's name; may be left out.")
    read: ReadIn = Field(ReadIn(), description="How to read.")
    deadline_ms: int | None = Field(
        None, ge=1, le=MAX_DEADLINE_MS, description="Answer or fail within this time. Default 8000."
    )
    metadata: Metadata = Field(
        default_factory=dict,
        max_length=16,
        description="Echoed and logged; never shown to the model, never part of the seed.",
    )

    def schema_of_questions(self) -> Schema:
        """Return the questions as the core knows them.

        Raises:
            InvalidRequest: a question breaks one of its invariants; the path is the request's.
        """
        return Schema(tuple((name, _question(name, given)) for name, given in self.questions.items()))

    def state_text(self) -> str:
        """Return the state as the model is shown it: text as it is, JSON compact and unescaped.

        Raises:
            InvalidRequest: the JSON holds NaN, an infinity or an integer beyond what JSON text can carry.
        """
        return _text(self.state, ("state",))

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's."""
        read = self.read
        return replace(
            defaults, layout=read.layout, template=read.template, keys=read.keys, isolate=read.isolate
        )

    def read_policy(self, defaults: ReadPolicy) -> ReadPolicy:
        """Return the request's policy over the server's."""
        threshold = self.read.entropy_threshold
        return replace(
            defaults,
            samples=self.read.samples,
            entropy_threshold=defaults.entropy_threshold if threshold is None else threshold,
        )


def _question(name: str, given: NoulIn | ChoiceIn | ScoreIn) -> Question:
    try:
        return _core_question(given)
    except InvalidQuestion as error:
        raise located(error, name) from None


def _core_question(given: NoulIn | ChoiceIn | ScoreIn) -> Question:
    instructions = _text_or_none(given.instructions, ("instructions",))
    limits = Limits(**given.abstain.model_dump())
    aliases = tuple(sorted(given.aliases.items()))
    if isinstance(given, NoulIn):
        criteria = given.criteria or NoulCriteria()
        return Noul(
            instructions,
            _text_or_none(criteria.true, ("criteria", "true")),
            _text_or_none(criteria.false, ("criteria", "false")),
            given.threshold,
            limits,
            aliases,
        )
    if isinstance(given, ChoiceIn):
        options = tuple(
            (name, _text_or_none(text, ("criteria", name))) for name, text in given.criteria.items()
        )
        return Choice(instructions, options, limits, aliases)
    levels = tuple(_text(level, ("criteria", index)) for index, level in enumerate(given.criteria))
    return Score(instructions, levels, limits, aliases)


def _text_or_none(value: Any, path: tuple[str | int, ...]) -> str | None:
    return None if value is None else _text(value, path)


def _text(value: Any, path: tuple[str | int, ...]) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise InvalidQuestion("must be text, an object or an array, not null.", path=path)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        error = InvalidRequest if path == ("state",) else InvalidQuestion
        raise error(
            "holds a number that JSON cannot carry (NaN, an infinity, or far too long).", path=path
        ) from None
