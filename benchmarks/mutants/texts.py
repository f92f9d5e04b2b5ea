"""Changes to the text of a body, byte by byte."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from benchmarks.mutants.draft import Change, Draft
from benchmarks.mutants.values import ODD


def _flip(dice: random.Random, draft: Draft) -> None:
    text = bytearray(draft.text)
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        if text:
            text[dice.randrange(len(text))] = dice.randrange(256)
    draft.text = bytes(text)


def _truncate(dice: random.Random, draft: Draft) -> None:
    draft.text = draft.text[: dice.randrange(len(draft.text) + 1)]


def _insert(dice: random.Random, draft: Draft) -> None:
    at = dice.randrange(len(draft.text) + 1)
    junk = dice.choice(
        (
            b"\xff",
            b"\x00",
            b'"',
            b"\\u",
            b"{",
            b"]",
            b",",
            b"\xed\xa0\x80",
            b"\xc0\x80",
            b"//",
            b"\r\n",
            dice.randbytes(9),
        )
    )
    draft.text = draft.text[:at] + junk + draft.text[at:]


def _twice(dice: random.Random, draft: Draft) -> None:
    """Repeat a key: the same field with another value before it."""
    name = dice.choice(
        ("state", "questions", "model", "read", "samples", "input", "messages", "items", "deadline_ms")
    )
    value = json.dumps(dice.choice(ODD))
    if draft.text.startswith(b"{"):
        draft.text = f'{{"{name}":{value},'.encode() + draft.text[1:]


def _doubled(dice: random.Random, draft: Draft) -> None:
    draft.text += dice.choice((b"", b"\n", b"\r\n\r\n", b",")) + draft.text


def _other_charset(dice: random.Random, draft: Draft) -> None:
    text = draft.text.decode("utf-8", "replace")
    draft.text = text.encode(dice.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7")), "replace")


TEXTS: Sequence[Change] = (_flip, _flip, _truncate, _insert, _twice, _doubled, _other_charset)
