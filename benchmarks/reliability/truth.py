"""The right answers: each decision made again in this process, from what the fake engine says of reads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from typing import Any

import orjson

from benchmarks.reliability.load import Body, Reply
from benchmarks.reliability.processes import TOKENIZER
from structured_server.admission import Admission, Weight
from structured_server.backends import ReadsOnly, Step
from structured_server.core.plan import Capabilities, ReadOptions
from structured_server.core.policy import ReadPolicy
from structured_server.core.reads import Read, ReadRequest, Row
from structured_server.core.tokens import Tokenizer
from structured_server.driver import Driver, Query
from structured_server.metrics import Metrics
from structured_server.tokenizer import load_tokenizer
from structured_server.wire.decide_rendering import render
from structured_server.wire.decide_request import DecideRequest
from tests.fake_replies import logprobs_of

WIDTHS = (64, 16, 32, 48)
SERVED = tuple(tuple(sorted(widths)) for widths in accumulate([width] for width in WIDTHS))
"""What may be warm, in the order in which it becomes so: a server whose engine came back begins anew."""

TYPED = frozenset(
    {"loading", "overloaded", "draws_missing", "deadline_exceeded", "engine_error"},
)
"""Codes of what may go wrong without a fault of the caller's or of the server's own."""


class Truthful(ReadsOnly):
    """A backend in this process that says what the fake engine says."""

    name = "vllm"

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.capabilities = Capabilities(widths, 128, 4096)

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Compute each read."""
        return [_read(request) for request in batch]

    async def prepare(self) -> AsyncIterator[Step]:
        """Be ready at once."""
        no_steps: tuple[Step, ...] = ()
        for step in no_steps:
            yield step

    async def watch(self) -> str:
        """Never be lost."""
        return str(await asyncio.get_running_loop().create_future())

    async def close(self) -> None:
        """Hold nothing."""


class Truth:
    """Judges replies by the answers that the requests must have."""

    def __init__(self) -> None:
        tokenizer: Tokenizer = load_tokenizer(str(TOKENIZER))
        admission = Admission(Weight(sys.maxsize, sys.maxsize), max_waiting=0)
        self.drivers = [
            Driver(Truthful(widths), tokenizer, admission, Metrics()) for widths in reversed(SERVED)
        ]

    async def problem_of(self, reply: Reply) -> str | None:
        """Return what is wrong with a reply; nothing is with a typed error."""
        if reply.status is None:
            return f"lost: {reply.problem}"
        if reply.status != 200:
            return None if reply.code in TYPED else f"untyped: {reply.status} {reply.code}"
        said = reply.said
        if not isinstance(said, dict) or said["metadata"] != reply.asked["metadata"]:
            return "wrong: another request's answer"
        degraded = any(warning["code"] == "extra_reads_skipped" for warning in said["warnings"])
        asked = _with_one_draw(reply.asked) if degraded else reply.asked
        for driver in self.drivers:
            found = await answer_to(asked, driver)
            if found["reading"]["canvas_width"] == said["reading"]["canvas_width"]:
                same = all(found[part] == said[part] for part in ("answers", "undecided"))
                return None if same else "wrong: other numbers"
        return "wrong: a width that is not served"


def _read(request: ReadRequest) -> Read:
    ids = request.prompt.ids
    logprob = logprobs_of(ids, request.canvas)
    rows = [Row({i: logprob(i, at) for i in request.label_ids}, None) for at in request.positions]
    return Read(tuple(rows), len(ids))


def _with_one_draw(asked: Body) -> Body:
    return asked | {"read": asked["read"] | {"samples": 1}}


async def answer_to(asked: Body, driver: Driver) -> dict[str, Any]:
    """Return the body of the 200 that a request must have."""
    parsed = DecideRequest.model_validate_json(orjson.dumps(asked))
    outcome = await driver.decide(
        Query(
            schema=parsed.schema_of_questions(),
            state=parsed.state_text(),
            options=parsed.read_options(ReadOptions()),
            policy=parsed.read_policy(ReadPolicy()),
            seed=parsed.seed,
            deadline_s=3600,
        )
    )
    about: dict[str, Any] = {"identifier": "", "model": "", "backend": "", "model_revision": None}
    written = orjson.dumps(render(outcome, **about, metadata=parsed.metadata))
    body: dict[str, Any] = orjson.loads(written)
    return body
