"""Several vLLM servers as one backend: each is followed by itself, and each decision goes to one of them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

from structured_server.backends import Backend, Engine, Generation, NotReady, Relayed, Step
from structured_server.backends.vllm.replica import Replica
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.errors import UpstreamUnreachable

ROUTED_BYTES = 512
LOAD_FACTOR = 1.25
"""How far beyond the average one replica's load may go before others take over its decisions."""


def _nobody_cares(_: int) -> None:
    pass


class Replicas:
    """Routes each decision to one replica: the same prompts to the same one, for its prefix cache.

    Rendezvous hashing (Thaler and Ravishankar 1998) with bounded loads (Mirrokni, Thorup and Zadimoghaddam
    2018): the first replica by hash that is ready, does not fail and is not `LOAD_FACTOR` above the average.
    `on_ready` is told how many are ready whenever that changes.
    """

    name = "vllm"

    def __init__(
        self, backends: Sequence[tuple[str, Backend]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._changed = asyncio.Event()
        self.replicas = tuple(Replica(name, backend, self._notice, clock) for name, backend in backends)
        self.on_ready: Callable[[int], None] = _nobody_cares
        self._ready = 0  # as `on_ready` knows it
        self._following: list[asyncio.Task[None]] = []

    @property
    def capabilities(self) -> Capabilities:
        """What all that are ready can do; before any is, what all of them can."""
        able = [each for each in self.replicas if each.ready] or self.replicas
        return _in_common(tuple(each.capabilities for each in able))

    def route(self, key: bytes, /, *, avoid: Engine | None = None) -> Engine:
        """Return the replica for a decision whose prompts begin with `key`; not `avoid` if there is another.

        Raises:
            UpstreamUnreachable: none is ready.
        """
        ready = [each for each in self.replicas if each.ready]
        if not ready:
            raise UpstreamUnreachable("no engine is ready.")
        usable = [each for each in ready if each.breaker.allows()] or ready
        others = [each for each in usable if each is not avoid] or usable
        # Counted in whole canvases: a replica that reads one may take another, however little all others do.
        canvas = max(each.capabilities.widths[-1] for each in others)
        canvases = sum(each.load for each in others) / canvas + 1
        bound = canvas * math.ceil(LOAD_FACTOR * canvases / len(others))
        by_hash = sorted(others, key=lambda each: blake2b(key, digest_size=8, key=each.digest).digest())
        return next(each for each in by_hash if each.load < bound)

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Perform the reads on the replica that their prompt belongs to.

        Raises:
            UpstreamError: a read failed.
        """
        return await self.route(batch[0].prompt.routing_key).read(batch)

    async def generate(self, prompt: Prompt, tokens: int, stop: int) -> Generation:
        """Have the model write, on the replica that the prompt belongs to.

        Raises:
            UpstreamError: it failed.
        """
        return await self.route(prompt.routing_key).generate(prompt, tokens, stop)

    def chat(self, body: bytes) -> AbstractAsyncContextManager[Relayed]:
        """Send a chat request to one of them.

        Raises:
            UpstreamError: none is ready, or it failed.
        """
        return self.route(body[:ROUTED_BYTES]).chat(body)

    def given_up(self) -> None:
        """Do nothing: each replica keeps its own account."""

    async def prepare(self) -> AsyncIterator[Step]:
        """Follow all of them, and be ready as soon as one is.

        Raises:
            NotReady: none is; the message says how each of them stands.
        """
        if not self._following:
            self._following = [asyncio.create_task(each.follow()) for each in self.replicas]
        yield Step("engines", f"one of {len(self.replicas)} engines to be ready")
        if not self._ready:
            await self._until_changed()
        if not self._ready:
            raise NotReady(self._standing())

    async def watch(self) -> str:
        """Return once none of them is ready any more."""
        while self._ready:
            await self._until_changed()
        return self._standing()

    async def close(self) -> None:
        """Stop following, and close all connections."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        self._following = []
        for each in self.replicas:
            await each.backend.close()

    def _notice(self) -> None:
        ready = sum(each.ready for each in self.replicas)
        if ready != self._ready:
            self._ready = ready
            self.on_ready(ready)
        self._changed.set()

    async def _until_changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _standing(self) -> str:
        return (
            "; ".join(f"{each.name}: {(each.problem or 'ready').rstrip('.')}" for each in self.replicas) + "."
        )


@lru_cache(maxsize=16)
def _in_common(able: tuple[Capabilities, ...]) -> Capabilities:
    """Return what all of them can do. They are servers of one kind, whose settings may differ."""
    lengths = [each.max_model_len for each in able if each.max_model_len is not None]
    widths = set.intersection(*(set(each.widths) for each in able))
    return replace(
        able[0],
        widths=tuple(sorted(widths)),
        max_model_len=min(lengths, default=None),
        images=all(each.images for each in able),
    )
