"""Changes to values: wrong types, odd values and fields, at a random place of the body."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

from benchmarks.mutants.bodies import CHOICE, NOUL
from benchmarks.mutants.draft import Change, Draft

ODD: Sequence[Any] = (
    None, True, False, -1, 0, 1.5, 5000, 2**31, 2**63, 2**64, -(2**70), 1e308, 1e-320, "", " ", "\x00",
    "\u2028", "\ufeff", "auto", "x" * 5000, "<turn|>", "<|channel>", "\u2581yes", '"', "\\", "{}",
    "[image 1]", [], {}, [[]], {"": None}, {"type": "noul"}, {"type": []}, [None] * 300, ["urgent"],
    {"urgent": [True]}, {"team": ["storage"]}, [1], 101.0, ["http://127.0.0.1/x.png"],
    ["file:///etc/passwd"], {"a": {"a": {"a": {"a": {}}}}}, {f"o{index}": None for index in range(300)},
    [{"type": "input_image", "image_url": ""}],
)  # fmt: skip
# What `json.dumps` does not write. It stands in the text in place of a marker.
RAW: Sequence[str] = (
    "NaN", "-Infinity", "Infinity", "1e999", "-0", "-0.0", "01", "1.", "+1", "0x10", "9" * 400, "9" * 5000,
    "-" + "9" * 4299, "1e-99999", '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d"', '"\\u0000"', '"\\x"',
    '"\t"', "tru", "'a'", "{,}", "[,]", "", "[" * 50 + "]" * 50, "[" * 150 + "]" * 150,
    "[" * 300 + "]" * 300, "[" * 5000 + "]" * 5000, "[" * 100_000, '{"a":' * 120 + "1" + "}" * 120,
    '{"a":' * 3000 + "1" + "}" * 3000, '{"a":1,"a":2}', '{"state":"a","state":null}', "/**/1",
)  # fmt: skip
MARK = "@@here@@"


def _places(body: Any) -> list[tuple[Any, Any]]:
    """Return each container with each of its keys, all the way down."""
    found: list[tuple[Any, Any]] = []
    waiting = [body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict | list):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            found += [(node, key) for key in keys]
            waiting += [node[key] for key in keys]
    return found


def _anywhere(dice: random.Random, draft: Draft) -> tuple[Any, Any]:
    places = _places(draft.body)
    return dice.choice(places) if places else ({"a": 1}, "a")


def _odd_value(dice: random.Random, draft: Draft) -> None:
    node, key = _anywhere(dice, draft)
    node[key] = copy.deepcopy(dice.choice(ODD))


def _raw_value(dice: random.Random, draft: Draft) -> None:
    node, key = _anywhere(dice, draft)
    node[key] = MARK


def _drop(dice: random.Random, draft: Draft) -> None:
    node, key = _anywhere(dice, draft)
    del node[key]


def _rename(dice: random.Random, draft: Draft) -> None:
    node, key = _anywhere(dice, draft)
    if isinstance(node, dict):
        node[dice.choice(("", "\x00", "state", "questions", "type", "\U0001d504", "q" * 500, MARK))] = (
            node.pop(key)
        )


def _unknown_field(dice: random.Random, draft: Draft) -> None:
    node, _ = _anywhere(dice, draft)
    if isinstance(node, dict):
        name = dice.choice(("provider", "x_trace", "user", "stat", "state", "images", "ask"))
        node[name] = copy.deepcopy(dice.choice(ODD))


def _elsewhere(dice: random.Random, draft: Draft) -> None:
    """Put one part of the body in the place of another."""
    (node, key), (other, of) = _anywhere(dice, draft), _anywhere(dice, draft)
    if key in (node if isinstance(node, dict) else range(len(node))):
        other[of] = copy.deepcopy(node[key])


def _nest(dice: random.Random, draft: Draft) -> None:
    node, key = _anywhere(dice, draft)
    node[key] = dice.choice(({"nested": node[key]}, [node[key]], [node[key], node[key]]))


def _all_of_it(dice: random.Random, draft: Draft) -> None:
    draft.body = copy.deepcopy(dice.choice((*ODD, MARK)))


def _many(dice: random.Random, draft: Draft) -> None:
    """Ask very many questions, or one with very many options."""
    if isinstance(draft.body, dict):
        options = {f"o{n}": None for n in range(dice.choice((27, 90, 1001)))}
        wide = {"q": {**CHOICE, "criteria": options}}
        long = {f"q{n}": NOUL for n in range(dice.choice((30, 401)))}
        draft.body["questions"] = copy.deepcopy(dice.choice((wide, long)))


def _hurry(dice: random.Random, draft: Draft) -> None:
    if isinstance(draft.body, dict):
        draft.body["deadline_ms"] = dice.choice((1, 2, 5, 20))


def text_of(dice: random.Random, draft: Draft) -> bytes:
    """Return a body as JSON, with what JSON cannot be where it was marked."""
    text = json.dumps(draft.body, ensure_ascii=dice.random() < 0.5)
    while f'"{MARK}"' in text:
        text = text.replace(f'"{MARK}"', dice.choice(RAW), 1)
    return text.encode("utf-8", "surrogatepass")


VALUES: Sequence[Change] = (
    _odd_value,
    _odd_value,
    _odd_value,
    _raw_value,
    _raw_value,
    _drop,
    _rename,
    _unknown_field,
    _elsewhere,
    _nest,
    _all_of_it,
    _many,
    _hurry,
)
