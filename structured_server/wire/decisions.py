"""OpenAI's Decisions: its request, and what it becomes inside.

Questions stand in a list and may have a name; inside they are known by their place in it. Neither reaches the
model. Fields that are not known are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, from_json

from structured_server.core.plan import ReadOptions
from structured_server.core.questions import (
    MAX_LEVELS,
    MAX_OPTIONS,
    MAX_QUESTIONS,
    Choice,
    Noul,
    Question,
    Schema,
    Score,
)
from structured_server.core.reads import Image
from structured_server.errors import InvalidQuestion, InvalidRequest, Path
from structured_server.wire.decisions_input import (
    Content,
    CustomToolCall,
    FunctionCall,
    ImagePart,
    Input,
    JsonPart,
    Message,
    RefusalPart,
    TextPart,
    ToolOutput,
)
from structured_server.wire.extensions import Lenient, ReadingExtensions
from structured_server.wire.fields import MAX_IMAGES, SAID, SAYS_SOMETHING, text_of_state
from structured_server.wire.images import data_url_image
from structured_server.wire.validation import caller_error


def _value(given: Any) -> Any:
    if isinstance(given, str | bool):
        return given
    raise PydanticCustomError("value", "must be text, true or false")


class _QuestionIn(Lenient):
    name: str | None = Field(None, description="Echoed with the answer.")
    instructions: Content = Field(description="What is asked.")


class PredicateQuestion(_QuestionIn):
    """A statement that may be true."""

    model_config = ConfigDict(json_schema_extra={"allOf": [{"properties": {"instructions": SAID}}]})

    type: Literal["predicate"]


class ChoiceOption(Lenient):
    """One of several options. Text and a boolean that reads the same are different values."""

    value: Annotated[
        str | bool,
        PlainValidator(_value),
        WithJsonSchema({"anyOf": [{"type": "string", "pattern": SAYS_SOMETHING}, {"type": "boolean"}]}),
    ]
    description: str | None = None


class ChoiceQuestion(_QuestionIn):
    """One of several options."""

    type: Literal["choice"]
    choices: list[ChoiceOption] = Field(
        json_schema_extra={"minItems": 2, "maxItems": MAX_OPTIONS, "uniqueItems": True}
    )


class ScoreLevel(Lenient):
    """A level of a rubric."""

    label: str = Field(json_schema_extra={"pattern": SAYS_SOMETHING})
    description: str | None = None


class ScoreQuestion(_QuestionIn):
    """A rubric of levels, from the lowest."""

    type: Literal["score"]
    levels: list[ScoreLevel] = Field(
        description="From the lowest to the highest.",
        json_schema_extra={"minItems": 2, "maxItems": MAX_LEVELS, "uniqueItems": True},
    )


QuestionIn = Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class DecisionsRequest(ReadingExtensions):
    """An input and typed questions about it."""

    model: str = Field(description="The served model's name.")
    input: Input = Field(description="Text, or the items of a conversation.")
    questions: list[QuestionIn] = Field(min_length=1, max_length=MAX_QUESTIONS)


class DecisionsQuery:
    """A request as the core knows it. Images are numbered in the order in which they stand."""

    def __init__(self, asked: DecisionsRequest, beside: Sequence[Image] = ()) -> None:
        self.model = asked.model
        self.deadline_ms = asked.deadline_ms
        self.seed = asked.seed
        self.long_state = asked.long_state
        self.require_draws = asked.require_draws
        self.read_policy = asked.read_policy
        self.questions = asked.questions
        self._asked = asked
        self._images: list[Image] = []
        self._state = self._shown_input()
        self._schema = Schema(
            tuple((str(index), self._question(index, given)) for index, given in enumerate(asked.questions))
        )
        self.pictures = (*self._images, *beside)
        if len(self.pictures) > MAX_IMAGES:
            raise InvalidRequest(f"has {len(self.pictures)} images; {MAX_IMAGES} may be.", path=("input",))

    def state_text(self) -> str:
        """Return the input as the model is shown it: text as it is, a conversation as compact JSON.

        Raises:
            InvalidRequest: its JSON holds a number that JSON text cannot carry.
        """
        return text_of_state(self._state, ("input",))

    def schema_of_questions(self) -> Schema:
        """Return the questions as the core knows them."""
        return self._schema

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's: ids stay out of the prompt."""
        return replace(self._asked.read_options(defaults), keys="neutral")

    def _shown_input(self) -> Any:
        given = self._asked.input
        if isinstance(given, str):
            return given
        items = [self._shown_item(item, ("input", index)) for index, item in enumerate(given)]
        if len(given) == 1 and isinstance(given[0], Message) and given[0].role == "user":
            return items[0]["content"] if isinstance(items[0]["content"], str | list | dict) else items
        return items

    def _shown_item(
        self, item: Message | FunctionCall | CustomToolCall | ToolOutput, path: Path
    ) -> dict[str, Any]:
        if isinstance(item, Message):
            return {"role": item.role, "content": self._shown(item.content, (*path, "content"))}
        if isinstance(item, FunctionCall):
            return {"call": item.name, "arguments": item.arguments}
        if isinstance(item, CustomToolCall):
            return {"call": item.name, "input": item.input}
        return {"output": self._shown(item.output, (*path, "output"))}

    def _shown(self, content: str | Sequence[Any], path: Path) -> Any:
        """Return text as it is, one part by itself, and several as a list."""
        if isinstance(content, str):
            return content
        shown = [self._shown_part(part, (*path, index)) for index, part in enumerate(content)]
        alone = len(shown) == 1 and shown[0] is not None  # null by itself says nothing
        return shown[0] if alone else shown

    def _shown_part(self, part: TextPart | JsonPart | ImagePart | RefusalPart, path: Path) -> Any:
        if isinstance(part, TextPart):
            return part.text
        if isinstance(part, JsonPart):
            return part.data
        if isinstance(part, RefusalPart):
            return {"refusal": part.refusal}
        self._images.append(data_url_image(part.image_url, (*path, "image_url")))
        return f"[image {len(self._images)}]"

    def _question(self, index: int, given: PredicateQuestion | ChoiceQuestion | ScoreQuestion) -> Question:
        place = ("questions", index)
        said = self._shown(given.instructions, (*place, "instructions"))
        instructions = text_of_state(said, (*place, "instructions"))
        try:
            if isinstance(given, PredicateQuestion):
                return Noul(instructions)
            if isinstance(given, ChoiceQuestion):
                names = _names([each.value for each in given.choices])
                described = [each.description for each in given.choices]
                return Choice(instructions, tuple(zip(names, described, strict=True)))
            return Score(instructions, tuple(map(_level, given.levels)))
        except InvalidQuestion as error:
            raise _placed(error, place, given) from None


def parse(body: bytes, beside: Sequence[Image] = ()) -> DecisionsQuery:
    """Return the query that a body holds, with the images that came `beside` it.

    Raises:
        MalformedBody: it is not JSON.
        InvalidRequest: a field is wrong.
    """
    try:
        asked = DecisionsRequest.model_validate_json(body)
    except ValidationError as error:
        raise caller_error(error, DecisionsRequest) from None
    return DecisionsQuery(asked, beside)


def is_systemone(body: bytes) -> bool:
    """Tell whether a body is a System One request, which some clients send to the path of Decisions."""
    try:
        given = from_json(body)
    except ValueError:
        return False
    return isinstance(given, dict) and ("state" in given or isinstance(given.get("questions"), dict))


def _names(values: Sequence[str | bool]) -> Iterable[str]:
    """Return what the model is shown for each value: its text, or its JSON where two read the same."""
    words = [value if isinstance(value, str) else str(value).lower() for value in values]
    same = len({word.strip() for word in words}) < len(words)
    return [json.dumps(value, ensure_ascii=False) for value in values] if same else words


def _level(level: ScoreLevel) -> str:
    if level.description and level.label.strip():  # a blank label stays one, and is refused
        return f"{level.label}: {level.description}"
    return level.label


def _placed(
    error: InvalidQuestion, place: Path, given: PredicateQuestion | ChoiceQuestion | ScoreQuestion
) -> InvalidQuestion:
    """Return an error of the core with the names that the fields have here."""
    own = {"criteria": "choices" if isinstance(given, ChoiceQuestion) else "levels"}
    path = tuple(own.get(str(part), part) for part in error.path)
    if isinstance(given, PredicateQuestion):
        return InvalidQuestion("must say something.", path=(*place, *path))
    hint = error.hint and error.hint.replace("type noul", "type predicate")
    return InvalidQuestion(error.predicate, path=(*place, *path), hint=hint)
