"""An event loop whose clock jumps: a test that waits for minutes takes no time and always the same path."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


_THREAD_S = 3.0  # real seconds that another thread may take


class _Jumping(selectors.DefaultSelector):
    """Where the loop would sleep until its next timer, moves the clock there instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; wait only where no timer is set, which may be for another thread."""
        ready = super().select(_THREAD_S if timeout is None else 0)
        if not ready and timeout is None:
            raise RuntimeError("everything waits, and for nothing that could come")
        if not ready:
            self.now += timeout or 0
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Starts at 0 seconds. Not for sockets."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._jumping.now


def simulate(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(scenario)


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test run in simulated time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        simulate(test(*args, **kwargs))

    return run


def now() -> float:
    """Return the running loop's time in seconds."""
    return asyncio.get_running_loop().time()
