"""Runs a request as the server would and records the bodies that would go upstream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from typing import Any

from structured_server.admission import Admission, Weight
from structured_server.backends import ReadsOnly, Step
from structured_server.backends.vllm.messages import completion_body
from structured_server.core.plan import Capabilities, ReadOptions
from structured_server.core.policy import ReadPolicy
from structured_server.core.reads import Read, ReadRequest, Row
from structured_server.core.tokens import Tokenizer
from structured_server.driver import Driver, Query
from structured_server.metrics import Metrics
from structured_server.wire.decide_request import DecideRequest


class Recorder(ReadsOnly):
    """A backend that keeps the bodies it would send, and answers with a function of them."""

    name = "recorder"
    capabilities = Capabilities((16, 32, 48, 64), 128, 2048)

    def __init__(self) -> None:
        self.bodies: list[str] = []

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Record each read."""
        return [self._read(request) for request in batch]

    def _read(self, request: ReadRequest) -> Read:
        body = completion_body("dgemma", request)
        self.bodies.append(body.decode())
        rows = []
        for position in request.positions:
            logprobs = {}
            for token in request.label_ids:
                digest = blake2b(body + f"{position}:{token}".encode(), digest_size=2).digest()
                logprobs[token] = -int.from_bytes(digest, "big") / 8192
            rows.append(Row(logprobs, None))
        return Read(tuple(rows), len(request.prompt.ids))

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


async def upstream_bodies(tokenizer: Tokenizer, request: dict[str, Any]) -> list[str]:
    """Return the bodies that answering the request sends upstream, in order."""
    asked = DecideRequest.model_validate_json(json.dumps(request))
    backend = Recorder()
    driver = Driver(backend, tokenizer, Admission(Weight(100_000, 1000), max_waiting=0), Metrics())
    await driver.decide(
        Query(
            schema=asked.schema_of_questions(),
            state=asked.state_text(),
            options=asked.read_options(ReadOptions()),
            policy=asked.read_policy(ReadPolicy()),
            seed=asked.read.seed,
            deadline_s=60,
        )
    )
    return backend.bodies
