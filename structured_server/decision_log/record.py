"""What is recorded of a decision, and the plain JSON that it becomes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structured_server.decision_log.hashing import KeyedHash
from structured_server.driver import Outcome, Query
from structured_server.wire.decide_asking import questions_of, read_of, unsaid_of
from structured_server.wire.decide_rendering import About, render

READ_BYTES = 8192
"""About what a waiting entry holds for each of its reads, beside the state."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Where a request came in, under which id, and the name of the key that it had."""

    route: str
    request_id: str
    key: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision as it was made, to be recorded. `item` is what names a batch's item."""

    at: float  # seconds since the epoch
    query: Query
    outcome: Outcome
    about: About
    sender: Sender
    metadata: Mapping[str, str]
    item: Mapping[str, Any] | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it holds while it waits."""
        images = sum(len(image.data) for image in self.query.images)
        return len(self.query.state) + images + READ_BYTES * len(self.outcome.decision.reads)


@dataclass(frozen=True, slots=True)
class Record:
    """A decision as it is kept. `questions` and `body` are JSON."""

    identifier: str
    at: float
    state_hash: str
    questions: str
    body: str


def record_of(entry: Entry, keyed: KeyedHash, *, with_state: bool) -> Record:
    """Return what is kept of an entry.

    Without `with_state` nothing in it is a state's text: neither the state, nor what the model thought about
    it, nor the messages of warnings, which may quote a token that it preferred.
    """
    query, outcome = entry.query, entry.outcome
    answer = render(outcome, **entry.about, metadata=entry.metadata)
    state_hash = keyed.state(query.state, ((image.media_type, image.data) for image in query.images))
    if not with_state:
        for warning in answer["warnings"]:
            del warning["message"]
        for thought in answer["reading"]["thoughts"]:
            del thought["text"]
    body = {
        "request_id": entry.sender.request_id,
        "route": entry.sender.route,
        "api_key": entry.sender.key or None,
        "item": entry.item,
        "hash_key": keyed.name,
        "state_hash": state_hash,
        "prompt_hash": keyed.prompt(_prompts(outcome)),
        "read": read_of(query),
        "unsaid": unsaid_of(query),
        "decision": answer,
    }
    if with_state:
        body["state"] = query.state
    return Record(
        entry.about["identifier"],
        entry.at,
        state_hash,
        json.dumps(questions_of(query.schema)),
        json.dumps(body),
    )


def _prompts(outcome: Outcome) -> list[bytes]:
    """Return the token ids of each prompt that was read, four bytes each, the most significant first."""
    return [
        struct.pack(f">{len(arrangement.prompt.ids)}I", *arrangement.prompt.ids)
        for reading in outcome.decision.readings
        for arrangement in reading.job.arrangements
    ]
