"""A pydantic model as the question set: fields become questions, and the answers come back as that model."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from structured_server.client.answers import Reply
from structured_server.client.errors import BadQuestions, UnexpectedReply
from structured_server.client.questions import Choice, Noul, Question, Score, Text

M = TypeVar("M", bound=BaseModel)

HOW = (
    "Use bool, Literal[...] of texts, an Enum of texts, an IntEnum from 0, or Annotated[int, Levels(...)]; "
    "or Annotated with a Noul, Choice or Score of its own."
)


@dataclass(frozen=True, init=False)
class Levels:
    """The levels of a score, from the lowest: `Annotated[int, Levels("none", "minor", "major")]`."""

    levels: tuple[Text, ...]

    def __init__(self, *levels: Text) -> None:
        object.__setattr__(self, "levels", levels)


@dataclass(frozen=True, slots=True)
class Criteria:
    """What the options of a choice mean: `Annotated[Literal["red", "blue"], Criteria({"red": "..."})]`."""

    meanings: Mapping[str, Text | None]


class QuestionModel(Generic[M]):
    """A model, its questions, and the way back."""

    def __init__(self, model: type[M]) -> None:
        """Take the model apart.

        Raises:
            BadQuestions: a field cannot be a question.
        """
        self._model = model
        self._fields = {name: _Field.of(model, name, info) for name, info in model.model_fields.items()}
        if not self._fields:
            raise BadQuestions(f"{model.__name__} has no fields, so that it asks nothing.")

    @property
    def questions(self) -> dict[str, Question]:
        """The questions by field."""
        return {name: field.question for name, field in self._fields.items()}

    def value(self, reply: Reply) -> M | None:
        """Return the model filled with the answers, None where a field must have one and has none.

        Its own validators run, and may raise pydantic's ValidationError.

        Raises:
            UnexpectedReply: an answer is none of the options.
        """
        values: dict[str, Any] = {}
        for name, field in self._fields.items():
            answer = reply.answers[name].answer if name in reply.answers else None
            if answer is not None and field.members and answer not in field.members:
                raise UnexpectedReply(f"the answer to {name} is none of its options.", 200)
            if answer is not None:
                values[name] = field.members[answer] if field.members else answer
            elif field.optional:
                values[name] = None
            elif field.required:
                return None
        # By name, also where a field has an alias: question ids are names.
        return self._model.model_validate(values, by_name=True, by_alias=False)


@dataclass(frozen=True, slots=True)
class _Field:
    question: Question
    optional: bool
    required: bool
    members: Mapping[Any, Any] | None = None  # from an answer to the value that stands for it

    @classmethod
    def of(cls, model: type[BaseModel], name: str, info: FieldInfo) -> _Field:
        kind, optional = _without_none(info.annotation)
        extras = [*info.metadata]
        while get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            extras += more
        asked = info.description or info.title
        given = next((each for each in extras if isinstance(each, Noul | Choice | Score)), None)
        found = (given, None) if given else _question(kind, asked, extras)
        if found is None:
            shown = getattr(kind, "__name__", None) or str(kind)
            raise BadQuestions(f"{model.__name__}.{name}: {shown} cannot be a question. {HOW}")
        question, members = found
        if isinstance(question, Noul) and not (question.instructions or question.true or question.false):
            raise BadQuestions(
                f"{model.__name__}.{name}: nothing says what is asked. Give it a description: "
                'Field(description="Should we wake an on-call engineer?").'
            )
        return cls(question, optional, info.is_required(), members)


def _without_none(kind: Any) -> tuple[Any, bool]:
    """Return the type without None, and whether it may be that."""
    if get_origin(kind) in (Union, types.UnionType):
        others = [each for each in get_args(kind) if each is not type(None)]
        if len(others) == 1 and len(others) < len(get_args(kind)):
            return others[0], True
    return kind, False


def _question(
    kind: Any, asked: str | None, extras: list[Any]
) -> tuple[Question, Mapping[Any, Any] | None] | None:
    meanings = next((each.meanings for each in extras if isinstance(each, Criteria)), {})
    levels = next((each.levels for each in extras if isinstance(each, Levels)), None)
    if kind is bool:
        return Noul(instructions=asked, true=meanings.get("true"), false=meanings.get("false")), None
    if kind is int and levels:
        return Score(instructions=asked, levels=levels), None
    if get_origin(kind) is Literal and all(isinstance(each, str) for each in get_args(kind)):
        return Choice(instructions=asked, options={each: meanings.get(each) for each in get_args(kind)}), None
    if not isinstance(kind, type) or not issubclass(kind, Enum):
        return None
    values = [member.value for member in kind]
    members = {member.value: member for member in kind}
    if issubclass(kind, IntEnum):
        if sorted(values) != list(range(len(values))):
            return None
        names: tuple[Text, ...] = levels or tuple(kind(value).name.lower() for value in sorted(values))
        return Score(instructions=asked, levels=names), members
    if all(isinstance(value, str) for value in values):
        return Choice(instructions=asked, options={value: meanings.get(value) for value in values}), members
    return None
