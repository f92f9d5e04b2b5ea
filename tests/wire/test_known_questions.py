"""Questions known by their bytes: the schema is that of the request, always, and is made once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.questions import Schema
from structured_server.errors import InvalidRequest
from structured_server.wire.decide_request import DecideRequest
from structured_server.wire.known_questions import MOST_KNOWN, KnownQuestions

URGENT: dict[str, Any] = {"type": "noul", "instructions": "Wake somebody?"}
KNOWN = KnownQuestions()


def schema_of(known: KnownQuestions, body: bytes) -> Schema:
    return known.schema_of(DecideRequest.model_validate_json(body), body)


def body(questions: dict[str, Any], state: Any = "x") -> bytes:
    return json.dumps({"state": state, "questions": questions}).encode()


def test_the_same_questions_about_another_state_are_the_same_schema() -> None:
    known = KnownQuestions()
    first, second = (schema_of(known, body({"urgent": URGENT}, state)) for state in ("a", {"b": [1, 2]}))
    assert first is second


@given(
    instructions=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4),
    threshold=st.sampled_from([0, 0.0, 1, 0.5, 0.50]),
    twice=st.booleans(),
)
def test_a_known_schema_is_what_the_request_says(
    instructions: list[str], threshold: float, twice: bool
) -> None:
    """The same `KNOWN` for all examples, so that earlier ones may be in the way."""
    questions = {
        f"q{number}": {"type": "noul", "instructions": text, "threshold": threshold}
        for number, text in enumerate(instructions)
    }
    written = body(questions)
    if twice:  # of two members of one name the last holds, for both who read it
        written = b'{"questions": {"x": {"type": "noul", "instructions": "Other?"}}, ' + written[1:]
    expected = DecideRequest.model_validate_json(written).schema_of_questions()
    assert expected == schema_of(KNOWN, written)


def test_what_is_no_json_elsewhere_is_read_all_the_same() -> None:
    written = b'{"state": {"x": NaN}, "questions": {"q": {"type": "noul", "instructions": "Wake?"}}}'
    assert "q" == schema_of(KnownQuestions(), written).questions[0][0]


def test_wrong_questions_are_refused_each_time() -> None:
    known = KnownQuestions()
    wrong = body({"q": {"type": "choice", "criteria": {"one": None}}})
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            schema_of(known, wrong)


def test_however_many_there_are_only_some_are_kept() -> None:
    known = KnownQuestions()
    for number in range(2 * MOST_KNOWN + 1):
        schema_of(known, body({f"q{number}": URGENT}))
    assert 0 < len(known) <= MOST_KNOWN
