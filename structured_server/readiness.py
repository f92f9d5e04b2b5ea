"""Readiness: walks the backend's checks until they all pass, and again after every loss."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from structured_server.backends import Backend, NotReady, Step
from structured_server.errors import Loading
from structured_server.metrics import Metrics

RETRY_S = 0.5
RETRY_AFTER_S = 30

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Where the server stands: the step it is at, for how many seconds, and what is wrong if anything."""

    ready: bool
    step: str
    waits_for: str
    seconds: float
    problem: str | None


class ReadinessMonitor:
    """Follows one backend. Start `run` as a task; ask `now` at any time."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics
        self._ready = False
        self._step = Step("starting", "the first check")
        self._since = time.monotonic()
        self._problem: str | None = None
        self._lost_at: float | None = None
        self.times_ready = 0
        self._draining = False

    @property
    def now(self) -> Readiness:
        """The state of things."""
        seconds = time.monotonic() - self._since
        ready = self._ready and not self._draining
        return Readiness(ready, self._step.name, self._step.waits_for, seconds, self._problem)

    @property
    def lost_s(self) -> float:
        """For how many seconds an engine that was ready has been lost: 0 while it is there, or never was."""
        return 0.0 if self._lost_at is None else time.monotonic() - self._lost_at

    def drain(self) -> None:
        """Say from now on that the server is not ready, and go on with what it has accepted."""
        self._draining = True
        self._enter(Step("draining", "nothing: the server stops"), problem=None)
        self._metrics.ready.set(0)

    def require(self) -> None:
        """Return if reads may be made.

        Raises:
            Loading: not yet, or no longer.
        """
        if not self._ready:
            now = self.now
            message = f"the server is not ready: {now.step}, waiting {now.seconds:.0f} s for {now.waits_for}."
            raise Loading(
                f"{message} {now.problem}" if now.problem else message,
                retry_after_s=RETRY_AFTER_S,
                hint="GET /ready tells when it is.",
            )

    async def run(self) -> None:
        """Prepare the backend, watch it, and begin again when it is lost. Never returns."""
        while True:
            if await self._prepare():
                self._set_ready(Step("ready", "nothing"))
                lost = await self._watch()
                self._metrics.engine_losses.inc()
                self._ready = False
                self._lost_at = time.monotonic()
                self._metrics.ready.set(0)
                self._enter(Step("engine", "the engine to come back"), problem=lost)
                log.warning("engine lost: %s", lost)
            await asyncio.sleep(RETRY_S)

    async def _prepare(self) -> bool:
        """Walk the steps once. A retry goes on showing the step that failed until it gets past it."""
        step = self._step
        reached = self._problem is None
        try:
            async for step in self._backend.prepare():
                if reached:
                    self._enter(step, problem=None)
                reached = reached or step.name == self._step.name
        except NotReady as error:
            if str(error) != self._problem:
                log.info("not ready: %s: %s", step.name, error)
            self._enter(step, problem=str(error))
            return False
        except Exception as error:  # a bug in a check must not leave the server unready for good, in silence
            log.exception("a readiness check failed")
            self._enter(step, problem=f"the check itself failed ({type(error).__name__}); the log has more.")
            return False
        return True

    async def _watch(self) -> str:
        """Return what happened to the backend, once it is lost or nobody can say any more."""
        try:
            return await self._backend.watch()
        except Exception as error:  # a bug there must not leave a lost engine ready for good
            log.exception("watching the engine failed")
            return f"watching it failed ({type(error).__name__}); the log has more."

    def _set_ready(self, step: Step) -> None:
        self._enter(step, problem=None)
        self._ready, self._lost_at = True, None
        self.times_ready += 1
        self._metrics.ready.set(0 if self._draining else 1)
        log.info("ready")

    def _enter(self, step: Step, *, problem: str | None) -> None:
        if self._draining and step.name != "draining":
            return
        if step.name != self._step.name:
            self._since = time.monotonic()
        self._step = step
        self._metrics.stands_at(step.name)
        self._problem = problem
