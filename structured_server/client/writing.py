"""Having a model write, by any OpenAI-compatible endpoint: pieces of text as they come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from structured_server.client.errors import UnexpectedReply
from structured_server.client.replies import error_of, place

DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of what is written. The last one tells why it ended, and what it took in tokens."""

    text: str = ""
    thought: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None


def pieces_of(response: httpx.Response) -> Iterator[Piece]:
    """Yield what a response of /v1/chat/completions holds, streamed or whole.

    Raises:
        ClientError: it is an error, or breaks off, or is something else.
    """
    if not response.is_success:
        response.read()
        raise error_of(response)
    if "text/event-stream" in response.headers.get("content-type", ""):
        yield from _streamed(response)
        return
    response.read()
    try:
        yield _piece(response.json(), "message")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _no_writing(response) from None


def _streamed(response: httpx.Response) -> Iterator[Piece]:
    ended = False
    for said in _events(response.iter_lines()):
        if said == DONE:
            ended = True
            break
        try:
            event = json.loads(said)
            if "error" in event:
                why = event["error"]
                message = why.get("message") if isinstance(why, dict) else why
                raise UnexpectedReply(f"it broke off: {message}", response.status_code)
            piece = _piece(event, "delta")
        except (ValueError, LookupError, TypeError, AttributeError):
            raise _no_writing(response) from None
        ended = ended or piece.finish_reason is not None
        yield piece
    if not ended:
        raise UnexpectedReply(f"{place(response)} broke off within the text.", response.status_code)


def _events(lines: Iterable[str]) -> Iterator[str]:
    """Yield the data of server-sent events (WHATWG HTML, 9.2.6); here each has one line of it."""
    for line in lines:
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _piece(body: Mapping[str, Any], member: str) -> Piece:
    choices = body["choices"]
    if not choices:  # the last event of a stream may hold nothing but usage
        return Piece(usage=body.get("usage"))
    said = choices[0].get(member) or {}
    return Piece(
        said.get("content") or "",
        said.get("reasoning") or said.get("reasoning_content") or "",
        choices[0].get("finish_reason"),
        body.get("usage"),
    )


def _no_writing(response: httpx.Response) -> UnexpectedReply:
    return UnexpectedReply(f"{place(response)} did not answer as in a chat.", response.status_code)
