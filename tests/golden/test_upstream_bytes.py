"""The bytes sent upstream for thirty requests: changing them moves numbers and takes a new method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from structured_server.core.provenance import METHOD
from structured_server.core.tokens import Tokenizer
from tests.golden.record import upstream_bodies
from tests.golden.requests import REQUESTS

GOLDEN = Path(__file__).parent / f"upstream_{METHOD}.json"


def encode(recorded: dict[str, list[str]]) -> str:
    """Return the golden file's text: a body a line."""
    return json.dumps(recorded, indent=0, ensure_ascii=False) + "\n"


def test_there_are_thirty_requests() -> None:
    assert 30 == len(REQUESTS)


@pytest.mark.parametrize("name", REQUESTS)
async def test_upstream_bytes_are_those_of_the_method(name: str, gemma: Tokenizer) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    assert golden[name] == await upstream_bodies(gemma, REQUESTS[name])


async def test_the_same_request_sends_the_same_bytes_again(gemma: Tokenizer) -> None:
    request = REQUESTS["triage"]
    assert await upstream_bodies(gemma, request) == await upstream_bodies(gemma, request)
