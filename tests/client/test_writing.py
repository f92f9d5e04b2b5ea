"""What streams of text hold, and how they may end."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from structured_server.client import BadInput, UnexpectedReply
from structured_server.client.writing import Piece, pieces_of

USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def delta(text: str | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text, **more}, "finish_reason": reason}]}


def stream(*events: Any, ends: bool = True) -> httpx.Response:
    """Return a response of server-sent events, some of them no data."""
    said = [": a comment", "event: message", *(f"data: {json.dumps(each)}" for each in events)]
    body = "\r\n\r\n".join([*said, *(["data: [DONE]"] if ends else []), ""])
    return httpx.Response(
        200,
        content=body.encode(),
        headers={"content-type": "text/event-stream; charset=utf-8"},
        request=httpx.Request("POST", "https://user:hidden@host/v1"),
    )


def test_pieces_come_in_order_with_thoughts_and_usage() -> None:
    response = stream(
        delta(role="assistant"),
        delta(reasoning="Hm."),
        delta("Zü"),
        delta("rich", "stop"),
        {"choices": [], "usage": USAGE},
    )
    pieces = [*pieces_of(response)]
    assert "Zürich" == "".join(piece.text for piece in pieces)
    assert "Hm." == "".join(piece.thought for piece in pieces)
    assert Piece(usage=USAGE) == pieces[-1]
    assert "stop" == pieces[-2].finish_reason


def test_a_stream_that_breaks_off_is_no_text() -> None:
    with pytest.raises(UnexpectedReply, match="broke off within the text") as caught:
        [*pieces_of(stream(delta("half"), ends=False))]
    assert "hidden" not in str(caught.value)
    with pytest.raises(UnexpectedReply, match="out of memory"):
        [*pieces_of(stream(delta("half"), {"error": {"message": "out of memory"}}, ends=False))]
    with pytest.raises(UnexpectedReply, match="it is gone"):
        [*pieces_of(stream({"error": "it is gone"}))]


@pytest.mark.parametrize("event", [{}, [], 7, {"choices": 7}, {"choices": [7]}, {"choices": [{"delta": 7}]}])
def test_events_of_another_kind_are_told_as_such(event: Any) -> None:
    with pytest.raises(UnexpectedReply):
        [*pieces_of(stream(event))]


def test_an_error_is_the_servers() -> None:
    said = {"error": {"message": "too long", "code": 400}}
    response = httpx.Response(400, json=said, request=httpx.Request("POST", "https://host"))
    with pytest.raises(BadInput, match="too long"):
        [*pieces_of(response)]
