"""What the tests ask: a complaint, three questions of it, and the smallest image."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from typesafe_sdk import Choice, Noul, Question, Score

from tests.conformance.target import MODEL

STATE = "You billed my card two times this month. I want the money back now, or I close my account!"
URGENT = Noul(instructions="Does this need attention at once?")
TEAM = Choice(
    instructions="Whose desk does this belong on?",
    criteria={"billing": "charges and refunds", "technical": "faults of the product", "sales": None},
)
ANGER = Score(instructions="How angry is the writer?", criteria=["calm", "irritated", "furious"])
THREE: dict[str, Question] = {"urgent": URGENT, "team": TEAM, "anger": ANGER}
GREETING: dict[str, Question] = {"greeting": Noul(instructions="Is this a greeting?")}


def body(**fields: Any) -> dict[str, Any]:
    """Return a small valid body with some of its fields set otherwise; `...` takes one out."""
    valid = {"model": MODEL, "state": "hi", "questions": {"q": {"type": "noul", "instructions": "Urgent?"}}}
    return {name: value for name, value in (valid | fields).items() if value is not ...}


def body_with(question: dict[str, Any]) -> dict[str, Any]:
    """Return a body that asks one question."""
    return body(questions={"q": question})


def png(width: int = 8, height: int = 8) -> bytes:
    """Draw a red rectangle."""
    row = b"\0" + b"\xff\0\0" * width
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(row * height), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
