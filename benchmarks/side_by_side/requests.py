"""What both servers are asked: three questions about texts that are all different."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

WORDS = """
the gateway answers slowly since checkout rollout in region north customers see errors timeouts retries
database connection pool exhausted deploy rollback
""".split()  # noqa: SIM905  one a line would be longer than the file

QUESTIONS: dict[str, Any] = {
    "urgent": {"type": "noul", "instructions": "Should we wake an on-call engineer?"},
    "team": {
        "type": "choice",
        "instructions": "Which team owns it?",
        "criteria": {
            "compute": None,
            "networking": None,
            "security": "attacks",
            "storage": None,
            "billing": None,
        },
    },
    "severity": {
        "type": "score",
        "instructions": "How severe?",
        "criteria": ["none", "minor", "major", "critical"],
    },
}


def states(tokens: int, seed: str) -> Iterator[str]:
    """Yield texts without end, each of about so many tokens and none like another."""
    chance, number = random.Random(seed), 0
    while True:
        number += 1
        yield f"Alert {number}: " + " ".join(chance.choices(WORDS, k=tokens - 10))
