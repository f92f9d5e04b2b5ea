"""Good requests of every route, to be made bad."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LONG_DEADLINE_MS = 60_000  # a busy machine is no finding
PIXEL = "iVBORw0KGgo="

Body = dict[str, Any]

NOUL = {"type": "noul", "instructions": "Is it urgent?", "criteria": {"true": "now", "false": None}}
CHOICE = {
    "type": "choice",
    "instructions": {"ask": "Which team?"},
    "criteria": {"storage": "disks", "compute": []},
}
_SCORE = {"type": "score", "instructions": "How bad?", "criteria": ["none", "minor", {"is": "major"}]}
_STATE = {"alert": "502 spike", "since": [14, 2.5, None, True], "note": "caf\u00e9 \U0001d504"}
_READ = {
    "samples": 1,
    "entropy_threshold": {"noul": 0.1},
    "temperature": 1.5,
    "max_reads": 40,
    "steps": 1,
    "think": 0,
    "layout": "document_first",
    "template": "lines",
    "keys": "neutral",
    "isolate": "noul",
    "seed": 7,
}
_TYPED = {
    "urgent": {**NOUL, "threshold": 0.4, "abstain": {"min_top_probability": 0.2}},
    "team": {**CHOICE, "ask_if": {"urgent": [True, False]}},
    "bad": {**_SCORE, "depends_on": ["urgent"], "alone": True},
}
_SYSTEMONE: Body = {
    "model": "jev-latest",
    "state": {**_STATE, "picture": "see A"},
    "questions": {"urgent": NOUL, "team": CHOICE, "bad": _SCORE},
    "samples": 1,
    "auto_max": 4,
    "auto_threshold": 0.2,
    "isolate": "none",
    "seed": 3,
    "instructions": "Incidents.",
    "deadline_ms": LONG_DEADLINE_MS,
}
_DECISIONS: Body = {
    "model": "jev-latest",
    "input": [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "502 spike"}, {"type": "input_json", "data": _STATE}],
        },
        {"type": "function_call", "name": "logs", "arguments": "{}"},
    ],
    "questions": [
        {"type": "predicate", "name": "urgent", "instructions": "It is urgent."},
        {"type": "choice", "instructions": "Which?", "choices": [{"value": "storage"}, {"value": True}]},
        {
            "type": "score",
            "instructions": "How bad?",
            "levels": [{"label": "none"}, {"label": "bad", "description": "down"}],
        },
    ],
    "samples": 1,
    "deadline_ms": LONG_DEADLINE_MS,
}
_LISTED = {
    "samples": 1,
    "deadline_ms": LONG_DEADLINE_MS,
    "questions": [
        {"id": "urgent", "type": "bool", "instructions": "Is it urgent?"},
        {
            "id": "team",
            "type": "choice",
            "options": ["storage", {"name": "compute"}],
            "ask_if": {"urgent": [True]},
        },
        {"id": "bad", "type": "score", "levels": [1, 2, "worst"]},
    ],
}
_CHAT: Body = {
    "model": "any",
    "messages": [
        {"role": "system", "content": json.dumps(_LISTED)},
        {"role": "user", "content": [{"type": "text", "text": "502 spike"}]},
    ],
}
_WRITTEN: Body = {
    "messages": [{"role": "user", "content": "Hello."}],
    "max_tokens": 3,
    "logit_bias": {"1": 2},
}
_DECIDE: Body = {"state": _STATE, "questions": _TYPED, "read": _READ, "deadline_ms": LONG_DEADLINE_MS}

ROUTES: Mapping[str, tuple[Body, ...]] = {
    "/decide": (
        _DECIDE,
        {**_DECIDE, "images": [f"data:image/png;base64,{PIXEL}"], "metadata": {"trace": "1"}},
    ),
    "/v1/decide": (_DECIDE,),
    "/decide/batch": (
        {
            "questions": {"q": NOUL},
            "read": {"samples": 1},
            "items": [{"state": "a", "id": "1"}, {"state": []}],
        },
    ),
    "/decide/lint": (
        {"questions": _TYPED, "against": {"questions": {"urgent": NOUL}}, "longest_state_tokens": 90},
    ),
    "/v1/systemone": (_SYSTEMONE, {**_SYSTEMONE, "assets": {"A": {"type": "image", "data_base64": PIXEL}}}),
    "/systemone": ({**_SYSTEMONE, "sequential": True, "chunk_rows": 24, "ask": ["team"]},),
    "/v1/decisions": (_DECISIONS, _SYSTEMONE),
    "/api/alpha/decisions": (_DECISIONS,),
    "/v1/chat/completions": (_CHAT, _WRITTEN),
}
