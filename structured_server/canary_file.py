"""What the canary is asked, with the answers that are right: from a file, or the one that comes along."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from structured_server.core.questions import Schema
from structured_server.errors import CallerError, InvalidRequest, SettingsError
from structured_server.wire.decide_request import DecideRequest, answer_key
from structured_server.wire.fields import AnswerWord
from structured_server.wire.validation import caller_error

BUILT_IN: Mapping[str, Any] = {
    "state": (
        "For ten minutes no customer in any region has been able to reach the product. The load balancers "
        "lost all their backends after a DNS change, and every request is answered with 503. It is not "
        "getting better by itself."
    ),
    "questions": {
        "urgent": {
            "type": "noul",
            "instructions": "Should we wake an on-call engineer?",
            "criteria": {
                "true": "Customers are being hurt, or soon will be, and it will not heal by itself.",
                "false": "Nothing gets worse for a customer if it waits until the working day.",
            },
        },
        "team": {
            "type": "choice",
            "instructions": "Which team owns the part that most likely failed?",
            "criteria": {
                "storage": "Disks, file shares, buckets, databases and their backups.",
                "networking": "Load balancers, DNS, routing, and links between sites.",
                "billing": "Invoices, payments, budgets, and accounts suspended over money.",
            },
        },
        "severity": {
            "type": "score",
            "instructions": (
                "How severe is the impact on customers? From none (nobody notices), through minor (a few are "
                "slowed down or have a way around) and major (many cannot use something that they need), to "
                "critical (most cannot use the product, or data is being lost)."
            ),
            "criteria": ["none", "minor", "major", "critical"],
        },
    },
    "expect": {"urgent": True, "team": "networking", "severity": 3},
}
"""One clear incident and three easy questions, one of each type."""


class _Request(DecideRequest):
    expect: dict[str, AnswerWord] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Known:
    """A request, and by question id the key of the answer that is right. Other questions have any."""

    asked: DecideRequest
    expected: Mapping[str, str]


def load_known(file: str) -> Known:
    """Read a request with its right answers from a file of JSON or YAML; with no file, the built-in one.

    Raises:
        SettingsError: it cannot be read, or is no such request.
    """
    if not file:
        return _known(BUILT_IN)
    try:
        found = yaml.safe_load(Path(file).read_bytes())
    except OSError as error:
        raise SettingsError(f"--canary {file} cannot be read: {error.strerror}.") from None
    except Exception:  # of dates, numbers and tags that are none PyYAML lets through whatever they raise
        raise SettingsError(f"--canary {file} is neither JSON nor YAML.") from None
    try:
        return _known(found)
    except CallerError as error:
        raise SettingsError(f"--canary {file}: {error.message}") from None
    except (TypeError, ValueError, RecursionError):
        raise SettingsError(f"--canary {file} holds what JSON cannot.") from None


def _known(found: Any) -> Known:
    try:
        asked = _Request.model_validate_json(json.dumps(found, allow_nan=False))
    except ValidationError as error:
        raise caller_error(error, _Request) from None
    expected = {name: answer_key(word) for name, word in asked.expect.items()}
    _check(expected, asked.schema_of_questions())
    asked.state_text(), asked.pictures(())
    return Known(asked, expected)


def _check(expected: Mapping[str, str], schema: Schema) -> None:
    questions = dict(schema.questions)
    for name, key in expected.items():
        if name not in questions:
            raise InvalidRequest("is no question of this request.", path=("expect", name))
        if key not in {option.key for option in questions[name].options}:
            raise InvalidRequest(
                "is an answer that this question cannot have: a noul has true and false, a choice its "
                "options, a score its levels' indices.",
                path=("expect", name),
            )
