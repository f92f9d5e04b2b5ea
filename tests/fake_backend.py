"""A backend without an engine, for tests of what stands above backends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from structured_server.backends import Generation, Relayed, Single, Step
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest, Row
from tests.fake_replies import expected_logprob

LogProb = Callable[[ReadRequest, int, int], float]
"""From a read, a token id and a canvas position to a log-probability."""


def _expected(request: ReadRequest, token_id: int, position: int) -> float:
    return expected_logprob(request.prompt.ids, request.canvas, token_id, position)


class FakeBackend(Single):
    """Answers reads by a function of the request, and does what it is told to do wrong.

    `delays` (seconds) and `failures` are keyed by the number of a batch, from 0 on; `problems` by the name of
    the step of `prepare` that raises them. Further `abilities` are fields of its `Capabilities`. What it
    writes is `thought`, as far as the tokens that it may write go, and it stops where that is all.
    """

    name = "fake"

    def __init__(
        self,
        *,
        widths: Sequence[int] = (16, 32, 48, 64),
        max_label_ids: int | None = 128,
        max_model_len: int | None = 4096,
        logprob: LogProb = _expected,
        delay_s: float = 0.0,
        thought: Sequence[int] = (),
        **abilities: Any,
    ) -> None:
        self.capabilities = Capabilities(tuple(widths), max_label_ids, max_model_len, **abilities)
        self.logprob = logprob
        self.delay_s = delay_s
        self.thought = tuple(thought)
        self.generated: list[tuple[Prompt, int, int]] = []  # what was written behind: prompt, tokens, stop
        self.chats: list[bytes] = []
        self.generation_failure: Exception | None = None
        self.delays: dict[int, float] = {}
        self.failures: dict[int, Exception] = {}
        self.steps = [Step("engine", "the engine to answer"), Step("warm_up", "the first read")]
        self.step_s = 0.0
        self.problems: dict[str, Exception] = {}
        self.batches: list[tuple[ReadRequest, ...]] = []
        self.in_flight = self.most_in_flight = 0  # reads
        self.cancelled = 0  # batches
        self.closed = False
        self._lost: asyncio.Queue[str | Exception] = asyncio.Queue()

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Answer, after the batch's delay, or fail as told."""
        number = len(self.batches)
        self.batches.append(tuple(batch))
        self.in_flight += len(batch)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.delays.get(number, self.delay_s))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= len(batch)
        if number in self.failures:
            raise self.failures[number]
        return [self.answer(request) for request in batch]

    def answer(self, request: ReadRequest) -> Read:
        """Return what a read is answered with."""
        rows = (
            {token_id: self.logprob(request, token_id, position) for token_id in request.label_ids}
            for position in request.positions
        )
        return Read(tuple(Row(row, max(row, key=row.__getitem__)) for row in rows), len(request.prompt.ids))

    async def generate(self, prompt: Prompt, tokens: int, stop: int) -> Generation:
        """Write, after the usual delay, or fail as told."""
        self.generated.append((prompt, tokens, stop))
        await asyncio.sleep(self.delay_s)
        if self.generation_failure is not None:
            raise self.generation_failure
        return Generation(self.thought[:tokens], stopped=len(self.thought) < tokens)

    @asynccontextmanager
    async def chat(self, body: bytes) -> AsyncIterator[Relayed]:
        """Echo the request in two pieces, after the usual delay, or fail as told."""
        self.chats.append(body)
        await asyncio.sleep(self.delay_s)
        if self.generation_failure is not None:
            raise self.generation_failure

        async def pieces() -> AsyncIterator[bytes]:
            yield body[: len(body) // 2]
            yield body[len(body) // 2 :]

        yield Relayed(200, "application/json", pieces())

    async def prepare(self) -> AsyncIterator[Step]:
        """Walk the steps; one with a problem raises it."""
        for step in self.steps:
            yield step
            await asyncio.sleep(self.step_s)
            if step.name in self.problems:
                raise self.problems[step.name]

    def lose(self, what: str | Exception) -> None:
        """Let `watch` return, or raise, what happened."""
        self._lost.put_nowait(what)

    async def watch(self) -> str:
        """Wait for `lose`."""
        lost = await self._lost.get()
        if isinstance(lost, Exception):
            raise lost
        return lost

    async def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
