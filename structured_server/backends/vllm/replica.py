"""One vLLM server of several: whether it is ready, what it has in flight, and whether it fails too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b

from structured_server.backends import Backend, Generation, NotReady, Relayed
from structured_server.breaker import Breaker
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.errors import UpstreamError

RETRY_S = 0.5

log = logging.getLogger(__name__)


class Replica:
    """One server of several. `changed` is called whenever it stands otherwise than before."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.digest = blake2b(name.encode(), digest_size=16).digest()
        self.backend = backend
        self.ready = False
        self.problem: str | None = "it has not been looked at yet"
        self.load = 0  # canvas positions in flight
        self.breaker = Breaker(clock)
        self._changed = changed

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self.backend.capabilities

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Perform the reads here.

        Raises:
            UpstreamError: a read failed.
        """
        with self._counted(sum(request.width for request in batch)):
            return await self.backend.read(batch)

    async def generate(self, prompt: Prompt, tokens: int, stop: int) -> Generation:
        """Have the model write here.

        Raises:
            UpstreamError: it failed.
        """
        with self._counted(self.capabilities.widths[-1]):
            return await self.backend.generate(prompt, tokens, stop)

    @asynccontextmanager
    async def chat(self, body: bytes) -> AsyncIterator[Relayed]:
        """Send a chat request here.

        Raises:
            UpstreamError: it failed.
        """
        with self._counted(self.capabilities.widths[-1]):
            async with self.backend.chat(body) as relayed:
                yield relayed

    def given_up(self) -> None:
        """Take note that somebody waited for a reply in vain: its silence speaks against it."""
        self.breaker.failed()

    async def follow(self) -> None:
        """Prepare it, watch it, and begin again when it is lost. Never returns."""
        failed_at: str | None = None  # a retry goes on showing what failed until it gets past it
        while True:
            reached, step_name = failed_at is None, ""
            try:
                async for step in self.backend.prepare():
                    step_name = step.name
                    if reached:
                        self._stands(f"it waits for {step.waits_for}")
                    reached = reached or step.name == failed_at
                self.ready = True
                self._stands(None)
                log.info("engine ready: %s", self.name)
                problem, failed_at = await self.backend.watch(), None
                log.warning("engine lost: %s: %s", self.name, problem)
            except NotReady as error:
                problem, failed_at = str(error), step_name
                if problem != self.problem:
                    log.info("engine not ready: %s: %s", self.name, problem)
            except Exception as error:  # a bug in a check must not leave a replica out for good, in silence
                log.exception("following %s failed", self.name)
                problem = f"following it failed ({type(error).__name__}); the log has more."
                failed_at = step_name
            self.ready = False
            self._stands(problem)
            await asyncio.sleep(RETRY_S)

    def _stands(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._changed()

    @contextmanager
    def _counted(self, positions: int) -> Iterator[None]:
        self.load += positions
        self.breaker.attempt()
        try:
            yield
        except UpstreamError as error:
            # What it refused it answered: only silence, failure and nonsense speak against it.
            if error.kind == "rejected":
                self.breaker.succeeded()
            else:
                self.breaker.failed()
            raise
        except BaseException:
            self.breaker.abandoned()
            raise
        else:
            self.breaker.succeeded()
        finally:
            self.load -= positions
