"""`@typesafe-ai/sdk` under Node: a script asks through it, and what it prints is judged here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.conftest import ALIAS, KEY
from tests.clients.node import Node
from tests.clients.ticket import (
    LEVELS,
    ODD_OPTIONS,
    STATE,
    TOO_MANY_LEVELS,
    assert_choice,
    assert_score,
    choice_confidence,
)


@pytest.fixture(scope="module")
def printed(node: Node, server: str, keyed_server: str) -> dict[str, Any]:
    """What the script prints: each call's result, or its error's class and message."""
    asked = {
        "state": STATE,
        "options": ODD_OPTIONS,
        "levels": LEVELS,
        "tooMany": TOO_MANY_LEVELS,
        "keyed": keyed_server,
    }
    said: dict[str, Any] = node.run(
        "ask.mjs", ASKED=json.dumps(asked), KEY=KEY, TYPESAFE_BASE_URL=server, TYPESAFE_API_KEY="any"
    )
    return said


def test_answers_are_typed_and_options_come_back_byte_for_byte(printed: dict[str, Any]) -> None:
    answers = dict(printed["answers"])
    assert ["wake someone?", "odd", "severity"] == list(answers)
    assert 0 <= answers["wake someone?"]["noul"] <= 1
    odd, severity = (dict(answers[name]["probabilities"]) for name in ("odd", "severity"))
    assert_choice(answers["odd"]["choice"], odd, ODD_OPTIONS)
    assert pytest.approx(choice_confidence(odd)) == answers["odd"]["confidence"]
    assert_score(answers["severity"]["score"], {int(level): p for level, p in severity.items()})
    assert {str(i): level for i, level in enumerate(LEVELS)} == answers["severity"]["legend"]
    assert ("triage-demo", 3) == (printed["model"], printed["usage"]["output_tokens"])
    assert printed["requestId"]


def test_a_state_may_be_json(printed: dict[str, Any]) -> None:
    assert ["wake someone?", "odd", "severity"] == list(printed["json"]["answered"]["answers"])


def test_models_are_listed_and_the_servers_key_opens_it(printed: dict[str, Any]) -> None:
    names = [
        [model["name"] for model in each] for each in (printed["models"], printed["rightKey"]["answered"])
    ]
    assert [["triage-demo"], ["triage-demo", ALIAS]] == names


@pytest.mark.parametrize(
    ("call", "error", "status"),
    [
        ("unknownModel", "NotFoundError", 404),
        ("unanswerable", "UnprocessableEntityError", 422),
        ("wrongKey", "AuthenticationError", 401),
        ("lostKey", "PermissionDeniedError", 403),
    ],
)
def test_a_refusal_is_an_error_of_its_own_class_with_a_request_id(
    call: str, error: str, status: int, printed: dict[str, Any]
) -> None:
    said = printed[call]
    assert (error, status) == (said["refused"], said["status"])
    assert said["requestId"]


def test_a_refusal_names_the_field(printed: dict[str, Any]) -> None:
    assert "questions.team" in printed["unanswerable"]["message"]
