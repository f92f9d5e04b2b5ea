"""Types of fields that several wire formats share, and the text that JSON becomes for the model."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, PlainValidator, WithJsonSchema
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from structured_server.core.policy import MAX_DRAWS
from structured_server.core.questions import MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS
from structured_server.errors import InvalidQuestion, InvalidRequest, Path

MAX_DEADLINE_MS = 600_000
MAX_STEPS = 8
MAX_THOUGHT = 4096
MAX_IMAGES = 8
MOST_READS = 4096


def _text_like(value: Any) -> Any:
    if value is None or isinstance(value, str | dict | list):
        return value
    raise PydanticCustomError("text_like", "must be text, an object, an array or null")


def _state(value: Any) -> Any:
    if isinstance(value, str | dict | list):
        return value
    raise PydanticCustomError("state_type", "must be text, an object or an array")


def whole(value: Any) -> Any:
    """Return a whole number that is written with a fraction of nothing, 5.0, as what it is in JSON: 5."""
    return int(value) if type(value) is float and value.is_integer() else value


def _samples(value: Any) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    value = whole(value)
    if type(value) is int and 1 <= value <= MAX_DRAWS:
        return value
    raise PydanticCustomError("samples", f'must be "auto" or a whole number from 1 to {MAX_DRAWS}')


def _answer_word(value: Any) -> Any:
    value = whole(value)
    if type(value) is bool or (type(value) is int and abs(value) < MAX_DEADLINE_MS) or isinstance(value, str):
        return value
    raise PydanticCustomError("answer", "must be true, false, an option's name or a level's index")


_ANY_OF = [{"type": "string"}, {"type": "object"}, {"type": "array"}]
# A character that `str.strip` leaves: not the same as one that \S matches, which differs by language.
SAYS_SOMETHING = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
SAID: JsonDict = {
    "anyOf": [{"type": "string", "pattern": SAYS_SOMETHING}, {"type": "object"}, {"type": "array"}]
}
State = Annotated[Any, PlainValidator(_state), WithJsonSchema({"anyOf": _ANY_OF})]
Text = Annotated[Any, PlainValidator(_text_like), WithJsonSchema({"anyOf": [*_ANY_OF, {"type": "null"}]})]
WHOLE = BeforeValidator(whole)
Whole = Annotated[int, WHOLE]
# Bounds stand before the validator, or pydantic leaves them out of the schema of what may be null.
Deadline = Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS), WHOLE]
Samples = Annotated[
    int | Literal["auto"],
    PlainValidator(_samples),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_DRAWS}]}),
]
AnswerWord = Annotated[
    Any,
    PlainValidator(_answer_word),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {
                    "type": "integer",
                    "exclusiveMinimum": -MAX_DEADLINE_MS,
                    "exclusiveMaximum": MAX_DEADLINE_MS,
                },
                {"type": "string"},
            ]
        }
    ),
]
Level = Annotated[Any, PlainValidator(_text_like), WithJsonSchema(SAID)]

# What the core refuses with a sentence of its own, said in the document as well.
QUESTION_IDS: JsonDict = {"maxProperties": MAX_QUESTIONS, "propertyNames": {"minLength": 1}}
OPTION_NAMES: JsonDict = {
    "minProperties": 2,
    "maxProperties": MAX_OPTIONS,
    "propertyNames": {"pattern": SAYS_SOMETHING},
}
LEVELS: JsonDict = {"minItems": 2, "maxItems": MAX_LEVELS, "uniqueItems": True}
ANSWERS: JsonDict = {"minItems": 1}
_OUTCOME: list[JsonValue] = [
    {"required": [outcome], "properties": {outcome: SAID}} for outcome in ("true", "false")
]
SAYS_WHAT_IS_ASKED: JsonDict = {
    "anyOf": [
        {"required": ["instructions"], "properties": {"instructions": SAID}},
        {"required": ["criteria"], "properties": {"criteria": {"type": "object", "anyOf": _OUTCOME}}},
    ]
}


def text_of_state(state: Any, path: Path) -> str:
    """Return a state as the model is shown it.

    Raises:
        InvalidRequest: it holds a number that JSON cannot carry.
    """
    return text_of(state, path, InvalidRequest)


def text_or_none(value: Any, path: Path) -> str | None:
    """Return what a field says, None where it is absent.

    Raises:
        InvalidQuestion: it holds a number that JSON cannot carry.
    """
    return None if value is None else text_of(value, path)


def text_of(value: Any, path: Path, error: type[InvalidRequest] = InvalidQuestion) -> str:
    """Return text as it is, and JSON compact and unescaped.

    Raises:
        InvalidRequest: it is null, or holds NaN, an infinity or an integer beyond what JSON text can carry.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise InvalidQuestion("must be text, an object or an array, not null.", path=path)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise error(
            "holds a number that JSON cannot carry (NaN, an infinity, or far too long).", path=path
        ) from None
