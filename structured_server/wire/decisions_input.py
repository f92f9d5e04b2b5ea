"""OpenAI's Decisions: what an input is made of: a conversation's items, and the parts of their contents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from structured_server.wire.extensions import Lenient
from structured_server.wire.validation import PARTS, TEXT


class TextPart(Lenient):
    """Text."""

    type: Literal["input_text", "output_text"]
    text: str


class JsonPart(Lenient):
    """JSON."""

    type: Literal["input_json"]
    data: Any


class ImagePart(Lenient):
    """An image as a data URL."""

    type: Literal["input_image"]
    image_url: str


class RefusalPart(Lenient):
    """What an assistant would not say."""

    type: Literal["refusal"]
    refusal: str


Part = Annotated[TextPart | JsonPart | ImagePart | RefusalPart, Field(discriminator="type")]


def _form(given: Any) -> str | None:
    return TEXT if isinstance(given, str) else PARTS if isinstance(given, list) else None


_TEXT_OR_PARTS = Discriminator(
    _form, custom_error_type="form", custom_error_message="must be text or a list of objects"
)
Content = Annotated[Annotated[str, Tag(TEXT)] | Annotated[list[Part], Tag(PARTS)], _TEXT_OR_PARTS]


class Message(Lenient):
    """A message of a conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCall(Lenient):
    """A call of a tool."""

    type: Literal["function_call"]
    name: str
    arguments: str


class CustomToolCall(Lenient):
    """A call of a tool that takes text."""

    type: Literal["custom_tool_call"]
    name: str
    input: str


class ToolOutput(Lenient):
    """What a tool said."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    output: Content


def _item_type(given: Any) -> str:
    kind = given.get("type", "message") if isinstance(given, dict) else getattr(given, "type", "message")
    return "function_call_output" if kind == "custom_tool_call_output" else str(kind)


Item = Annotated[
    Annotated[Message, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[CustomToolCall, Tag("custom_tool_call")]
    | Annotated[ToolOutput, Tag("function_call_output")],
    Discriminator(_item_type),
]

Input = Annotated[Annotated[str, Tag(TEXT)] | Annotated[list[Item], Tag(PARTS)], _TEXT_OR_PARTS]
