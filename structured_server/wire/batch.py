"""The request and the lines of `POST /decide/batch`: one question set over many states.

The request is one JSON object, or lines (NDJSON): the object without `items`, then one item a line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structured_server.errors import InvalidRequest, MalformedBody, StructuredServerError
from structured_server.wire.decide_request import Asking
from structured_server.wire.decide_response import DecideResponse, ErrorDetail
from structured_server.wire.error_bodies import decide_error
from structured_server.wire.fields import Deadline, State, text_of_state
from structured_server.wire.validation import caller_error

MAX_ITEMS = 1000
MAX_ID = 128
MEDIA_TYPE = "application/x-ndjson"
LINE_TYPES = frozenset({MEDIA_TYPE, "application/jsonl"})

_LINE_HINT = f"To send one item a line, say Content-Type: {MEDIA_TYPE}."
_PLACE = re.compile(r" at line 1 column (\d+)")


class ItemIn(BaseModel):
    """One state of a batch."""

    model_config = Asking.model_config

    id: str | None = Field(None, max_length=MAX_ID, description="Echoed on the item's line.")
    state: State = Field(description="What the questions are about: text or JSON.")


class BatchHeadIn(Asking):
    """What the items of a batch have in common: the first line of a request in lines."""

    deadline_ms: Deadline | None = Field(
        None,
        description="Answer or fail each item within this time, from its turn on. Default 8000.",
    )


class BatchRequest(BatchHeadIn):
    """Typed questions, and the states to ask them about."""

    items: list[ItemIn] = Field(min_length=1, max_length=MAX_ITEMS, description="The states, in order.")


@dataclass(frozen=True, slots=True)
class Item:
    """One state as the model is shown it, with the id that its sender gave it."""

    index: int
    identifier: str | None
    state: str

    @property
    def names(self) -> dict[str, Any]:
        """What its line begins with."""
        return {"index": self.index} | ({} if self.identifier is None else {"id": self.identifier})


@dataclass(frozen=True, slots=True)
class Batch:
    """A whole request: the questions, and the items in order."""

    asked: Asking
    items: tuple[Item, ...]


def parse_batch(body: bytes) -> Batch:
    """Return the batch that one JSON object holds.

    Raises:
        MalformedBody: it is not JSON.
        InvalidRequest: a field is wrong.
    """
    try:
        asked = BatchRequest.model_validate_json(body)
    except ValidationError as error:
        wrong = caller_error(error, BatchRequest)
        if isinstance(wrong, MalformedBody):
            raise MalformedBody(wrong.message, hint=_LINE_HINT) from None
        raise wrong from None
    return Batch(asked, tuple(_item(index, given) for index, given in enumerate(asked.items)))


def parse_lines(body: bytes) -> Batch:
    """Return the batch that lines hold. Blank lines are skipped, but counted where a line is named.

    Raises:
        MalformedBody: a line is not JSON.
        InvalidRequest: a field is wrong, or there are too many items or none.
    """
    asked: BatchHeadIn | None = None
    items: list[Item] = []
    for number, text in enumerate(io.BytesIO(body), 1):
        line = text.strip()
        if not line:
            continue
        if asked is None:
            asked = _head(line, number)
        elif len(items) == MAX_ITEMS:
            raise InvalidRequest(f"may be at most {MAX_ITEMS}; line {number} is one more.", path=("items",))
        else:
            items.append(_item_of_line(line, number, len(items)))
    if asked is None:
        raise MalformedBody("the body has no line.", hint="The first one holds the questions.")
    if not items:
        raise InvalidRequest("must be at least one, a line each after the first.", path=("items",))
    return Batch(asked, tuple(items))


def _head(line: bytes, number: int) -> BatchHeadIn:
    try:
        return BatchHeadIn.model_validate_json(line)
    except ValidationError as error:
        wrong = caller_error(error, BatchHeadIn)
        if isinstance(wrong, MalformedBody):
            raise _malformed_line(wrong, number) from None
        if wrong.path == ("items",):
            raise InvalidRequest(
                "cannot stand in the first line of a body in lines.",
                path=wrong.path,
                hint="Send each item as a line of its own, or all of it as application/json.",
            ) from None
        if not wrong.path:
            raise InvalidRequest(wrong.message.replace("the body", f"line {number} of the body")) from None
        raise wrong from None


def _item_of_line(line: bytes, number: int, index: int) -> Item:
    try:
        return _item(index, ItemIn.model_validate_json(line))
    except ValidationError as error:
        wrong = caller_error(error, ItemIn)
        if isinstance(wrong, MalformedBody):
            raise _malformed_line(wrong, number) from None
        raise InvalidRequest(
            wrong.predicate.removeprefix("the body "), path=("items", index, *wrong.path), hint=wrong.hint
        ) from None


def _malformed_line(wrong: MalformedBody, number: int) -> MalformedBody:
    reason = _PLACE.sub(r" at column \1", wrong.message.removeprefix("the body "))
    return MalformedBody(f"line {number} of the body {reason}")


def _item(index: int, given: ItemIn) -> Item:
    return Item(index, given.id, text_of_state(given.state, ("items", index, "state")))


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BatchHeader(_Line):
    """The first line of an answer."""

    model: str
    fingerprint: str = Field(description="Of every decision that follows.")
    question_set: str
    items: int


class _ItemLine(_Line):
    index: int = Field(description="The item's place in the request, from 0.")
    id: str = Field("", description="As sent; absent where none was.")


class BatchDecided(_ItemLine):
    """The line of an item that was decided."""

    decision: DecideResponse


class BatchFailed(_ItemLine):
    """The line of an item that was not."""

    error: ErrorDetail


class BatchWaiting(_Line):
    """A line that keeps the connection alive while the next item is awaited."""

    waiting: Literal[True]


class BatchEnd(_Line):
    """The last line. Without it the answer is not whole."""

    done: Literal[True]
    ok: int = Field(description="Items that were decided.")
    failed: int = Field(description="Items that were not.")


BATCH_LINES = (BatchHeader, BatchDecided, BatchFailed, BatchWaiting, BatchEnd)


def header_line(*, model: str, fingerprint: str, question_set: str, items: int) -> dict[str, Any]:
    """Return the first line, in the shape of `BatchHeader`."""
    return {"model": model, "fingerprint": fingerprint, "question_set": question_set, "items": items}


def decided_line(item: Item, decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a decided item, in the shape of `BatchDecided`."""
    return {**item.names, "decision": decision}


def failed_line(item: Item, error: StructuredServerError, request_id: str) -> dict[str, Any]:
    """Return the line of a failed item, in the shape of `BatchFailed`."""
    return {**item.names, **decide_error(error, request_id)}


WAITING_LINE: dict[str, Any] = {"waiting": True}


def end_line(*, ok: int, failed: int) -> dict[str, Any]:
    """Return the last line, in the shape of `BatchEnd`."""
    return {"done": True, "ok": ok, "failed": failed}
