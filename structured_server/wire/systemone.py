"""TypeSafe's System One: its request, and what it becomes inside.

Question ids never reach the model. Fields that are not known are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic.config import JsonDict

from structured_server.core.plan import ReadOptions, located
from structured_server.core.questions import Choice, Noul, Question, Schema, Score
from structured_server.core.reads import Image
from structured_server.errors import InvalidQuestion, InvalidRequest, Path
from structured_server.wire.extensions import Conditional, Extensions, Lenient
from structured_server.wire.fields import (
    LEVELS,
    MAX_IMAGES,
    OPTION_NAMES,
    QUESTION_IDS,
    SAYS_WHAT_IS_ASKED,
    Level,
    State,
    Text,
    text_of,
    text_of_state,
    text_or_none,
)
from structured_server.wire.images import base64_image, image_of
from structured_server.wire.validation import OBJECT, TEXT, caller_error

MODELS = ("jev-latest", "jev-preview", "jev-1.13.0", "jev-1.14.0")
"""Names by which its clients ask for its own models: accepted in place of the served one's."""


class SystemOneNoulCriteria(Lenient):
    """What yes and no mean."""

    true: Text = None
    false: Text = None


class SystemOneNoul(Conditional):
    """A yes/no question."""

    model_config = ConfigDict(json_schema_extra=SAYS_WHAT_IS_ASKED)

    type: Literal["noul"]
    instructions: Text = Field(None, description="What is asked.")
    criteria: SystemOneNoulCriteria | None = None


class SystemOneChoice(Conditional):
    """One of several options."""

    type: Literal["choice"]
    instructions: Text = Field(None, description="What is asked.")
    criteria: dict[str, Text] = Field(
        description="Each option's name, with what it means or null.", json_schema_extra=OPTION_NAMES
    )


class SystemOneScore(Conditional):
    """A rubric of levels, from the lowest."""

    type: Literal["score"]
    instructions: Text = Field(None, description="What is asked.")
    criteria: list[Level] = Field(
        description="The levels, from the lowest to the highest.", json_schema_extra=LEVELS
    )


QuestionIn = Annotated[SystemOneNoul | SystemOneChoice | SystemOneScore, Field(discriminator="type")]


def _given_as(field: str) -> JsonDict:
    return {"required": [field], "properties": {field: {"type": "string"}}}


class SystemOneAsset(Lenient):
    """An image that stands in the place of its placeholder: in the request, or in a part beside it."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_given_as("data_base64"), _given_as("part")]})

    type: Literal["image"]
    format: str | None = Field(None, description="Not believed: an image tells by itself what it is.")
    data_base64: str | None = None
    part: str | None = Field(None, description="The part of a multipart body that holds it.")


class EncodedImage(Lenient):
    """An image in the form of vLLM's example server."""

    content_type: str
    base64: str


def _image_form(given: Any) -> str:
    return OBJECT if isinstance(given, dict | EncodedImage) else TEXT


class SystemOneRequest(Extensions):
    """A state and typed questions about it."""

    model: str = Field(description="The served model's name, or one of System One's own, such as jev-latest.")
    state: State = Field(description="What the questions are about: text or JSON.")
    questions: dict[str, QuestionIn] = Field(
        min_length=1, description="The questions by id.", json_schema_extra=QUESTION_IDS
    )
    assets: dict[str, SystemOneAsset] = Field(
        default_factory=dict,
        description="Images by placeholder: a text that stands where each belongs.",
        json_schema_extra={"maxProperties": MAX_IMAGES},
    )
    images: list[
        Annotated[
            Annotated[str, Tag(TEXT)] | Annotated[EncodedImage, Tag(OBJECT)], Discriminator(_image_form)
        ]
    ] = Field(
        default_factory=list,
        description="Images that belong to the state: data URLs, or objects with base64.",
        json_schema_extra={"maxItems": MAX_IMAGES},
    )


class SystemOneQuery:
    """A request with its placeholders replaced, as the core knows it.

    `pictures` are the images in the order of the numbers that stand for them in the texts; those that no
    placeholder names come last.
    """

    def __init__(self, asked: SystemOneRequest, parts: Sequence[tuple[str, Image]]) -> None:
        self.model = asked.model
        self.deadline_ms = asked.deadline_ms
        self.seed = asked.seed
        self.long_state = asked.long_state
        self.require_draws = asked.require_draws
        self.read_policy = asked.read_policy
        self._asked = asked
        self.pictures = _pictures(asked, parts)
        self._numbers = {placeholder: f"[image {n}]" for n, placeholder in enumerate(asked.assets, 1)}
        # The longest first: one placeholder may begin with another.
        longest_first = sorted(filter(None, self._numbers), key=len, reverse=True)
        self._placeholders = re.compile("|".join(map(re.escape, longest_first)))

    def state_text(self) -> str:
        """Return the state as the model is shown it.

        Raises:
            InvalidRequest: its JSON holds a number that JSON text cannot carry.
        """
        return text_of_state(self._shown(self._asked.state), ("state",))

    def schema_of_questions(self) -> Schema:
        """Return the questions as the core knows them.

        Raises:
            InvalidRequest: a question breaks one of its invariants; the path is the request's.
        """
        asked = self._asked
        schema = asked.schema_of(
            (name, self._question(name, given), given) for name, given in asked.questions.items()
        )
        return replace(schema, context=self._text(asked.instructions, ("instructions",)))

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's: ids stay out of the prompt."""
        return replace(self._asked.read_options(defaults), keys="neutral")

    def _question(self, name: str, given: SystemOneNoul | SystemOneChoice | SystemOneScore) -> Question:
        try:
            return self._core_question(given)
        except InvalidQuestion as error:
            raise located(error, name) from None

    def _core_question(self, given: SystemOneNoul | SystemOneChoice | SystemOneScore) -> Question:
        instructions = self._text(given.instructions, ("instructions",))
        if isinstance(given, SystemOneNoul):
            criteria = given.criteria or SystemOneNoulCriteria()
            return Noul(
                instructions,
                self._text(criteria.true, ("criteria", "true")),
                self._text(criteria.false, ("criteria", "false")),
            )
        if isinstance(given, SystemOneChoice):
            return Choice(
                instructions,
                tuple((name, self._text(text, ("criteria", name))) for name, text in given.criteria.items()),
            )
        return Score(
            instructions,
            tuple(
                text_of(self._shown(level), ("criteria", index)) for index, level in enumerate(given.criteria)
            ),
        )

    def _text(self, value: Any, path: Path) -> str | None:
        return text_or_none(self._shown(value), path)

    def _shown(self, value: Any) -> Any:
        """Return a value with every placeholder in its texts replaced by its image's number."""
        if isinstance(value, str) and self._placeholders.pattern:
            return self._placeholders.sub(lambda found: self._numbers[found[0]], value)
        if isinstance(value, list):
            return [self._shown(each) for each in value]
        if isinstance(value, dict):
            return {key: self._shown(each) for key, each in value.items()}
        return value


def parse(body: bytes, parts: Sequence[tuple[str, Image]]) -> SystemOneQuery:
    """Return the query that a body holds; `parts` are the images that came beside it.

    Raises:
        MalformedBody: it is not JSON.
        InvalidRequest: a field is wrong.
    """
    try:
        asked = SystemOneRequest.model_validate_json(body)
    except ValidationError as error:
        raise caller_error(error, SystemOneRequest) from None
    return SystemOneQuery(asked, parts)


def _pictures(asked: SystemOneRequest, parts: Sequence[tuple[str, Image]]) -> tuple[Image, ...]:
    left = dict(parts)
    named = [_asset(each, left, ("assets", placeholder)) for placeholder, each in asked.assets.items()]
    used = {each.part for each in asked.assets.values()}
    given = [_given(each, index) for index, each in enumerate(asked.images)]
    images = (*named, *given, *(image for name, image in parts if name not in used))
    if len(images) > MAX_IMAGES:
        raise InvalidRequest(f"may be at most {MAX_IMAGES}, got {len(images)}.", path=("images",))
    return images


def _asset(given: SystemOneAsset, parts: Mapping[str, Image], path: Path) -> Image:
    if given.part is not None:
        if given.part not in parts:
            raise InvalidRequest(f"has no part {given.part!r} in this body.", path=(*path, "part"))
        return parts[given.part]
    if given.data_base64 is None:
        raise InvalidRequest("needs data_base64, or a part.", path=path)
    return base64_image(given.data_base64, (*path, "data_base64"))


def _given(given: str | EncodedImage, index: int) -> Image:
    if isinstance(given, str):
        return image_of(given, index)
    return base64_image(given.base64, ("images", index, "base64"))
