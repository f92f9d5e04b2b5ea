"""What the tests ask through every client, and what must hold of any answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

STATE = "HTTP 502 spike on checkout, five minutes after a WAF rule update and the v412 rollout."

# Names that differ in bytes alone, and such as a careless server trims, escapes or normalises.
ODD_OPTIONS = (
    "networking",
    " padded ",
    "caf\u00e9",
    "cafe\u0301",
    'say "hi"',
    "a\\b",
    "日本",
    "👩‍💻",
    "Yes",
    "yes",
)
TEAMS = {"compute": None, "networking": "load balancers, DNS, WAF", "storage": None, "billing": None}
LEVELS = ("none", "minor", "major", "critical")

QUESTIONS: dict[str, Any] = {
    "wake someone?": {"type": "noul", "instructions": "Should we wake an on-call engineer?"},
    "team": {"type": "choice", "instructions": "Which team owns the incident?", "criteria": TEAMS},
    "severity": {"type": "score", "instructions": "How severe is customer impact?", "criteria": [*LEVELS]},
    "odd": {
        "type": "choice",
        "instructions": "Which word fits?",
        "criteria": dict.fromkeys(ODD_OPTIONS),
    },
}
TOO_MANY_LEVELS = [f"level {i}" for i in range(27)]
UNANSWERABLE: dict[str, Any] = {
    "team": {"type": "score", "instructions": "How severe?", "criteria": TOO_MANY_LEVELS}
}
"""A score of more levels than there are labels: every client sends it, and the server must refuse it."""


def assert_probabilities(found: Mapping[Any, float], options: Sequence[Any]) -> None:
    """Hold a distribution against its options: these, in this order, each a probability, together 1."""
    assert list(options) == list(found)
    assert all(0 <= p <= 1 for p in found.values())
    assert pytest.approx(1, abs=1e-9) == sum(found.values())


def assert_choice(choice: str, found: Mapping[str, float], options: Sequence[str]) -> None:
    """Hold a choice against its distribution, and that against its options."""
    assert_probabilities(found, options)
    assert max(found, key=found.__getitem__) == choice


def assert_score(score: float, found: Mapping[int, float], levels: Sequence[str] = LEVELS) -> None:
    """Hold a score against its distribution: it is the mean level, counted from 0."""
    assert_probabilities(found, range(len(levels)))
    assert pytest.approx(sum(level * p for level, p in found.items())) == score


def choice_confidence(found: Mapping[Any, float]) -> float:
    """Return System One's confidence of a choice."""
    return (max(found.values()) - 1 / len(found)) / (1 - 1 / len(found))
