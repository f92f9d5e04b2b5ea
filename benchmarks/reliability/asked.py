"""What is asked: triage questions about made-up alerts, no two of which are alike."""

from __future__ import annotations

import random
from typing import Any

SYSTEMS = ("router", "database", "queue", "gateway", "cache", "scheduler", "disk", "billing job")
STATES = (
    "is down",
    "answers slowly",
    "lost packets",
    "is full",
    "restarted",
    "refuses logins",
    "is fine again",
)
PLACES = ("in the office", "in region north", "at the customer", "behind the balancer", "since the release")

NOUL: dict[str, Any] = {"type": "noul", "instructions": "Is it urgent?"}
CHOICE: dict[str, Any] = {
    "type": "choice",
    "criteria": {"network": "links and routers", "storage": "disks and databases", "software": "all else"},
}
SCORE: dict[str, Any] = {"type": "score", "criteria": ["none", "low", "high", "critical"]}
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"urgent": NOUL},
    {"team": CHOICE},
    {"severity": SCORE},
    {"urgent": NOUL, "team": CHOICE, "severity": SCORE},
)


def alert(number: int, chance: random.Random) -> str:
    """Return the text of an alert, which its number makes one of a kind."""
    told = (chance.choice(SYSTEMS), chance.choice(STATES), chance.choice(PLACES))
    return f"Alert {number}: the {told[0]} {told[1]} {told[2]}."


def one_read(number: int, *, deadline_ms: int = 8000) -> dict[str, Any]:
    """Return a request that costs one read of the narrowest canvas."""
    return {
        "state": alert(number, random.Random(number)),
        "questions": {"urgent": NOUL},
        "read": {"samples": 1},
        "deadline_ms": deadline_ms,
        "metadata": {"number": str(number)},
    }


def many_kinds(number: int, seed: int, *, deadline_ms: int = 8000) -> dict[str, Any]:
    """Return a request of any kind that takes one canvas: with one draw, three, or as many as it needs."""
    chance = random.Random(f"{seed}:{number}")
    return {
        "state": alert(number, chance),
        "questions": chance.choice(QUESTIONS),
        "read": {"samples": chance.choices((1, "auto", 3), (80, 15, 5))[0], "seed": chance.randrange(4)},
        "deadline_ms": deadline_ms,
        "metadata": {"number": str(number)},
    }
