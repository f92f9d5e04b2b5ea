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
    """Where the loop would sleep until its next timer, moves the clock there instead.

    While work is done in other threads it waits for them: that takes no simulated time.
    """

    now = 0.0
    at_work = 0  # threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; wait only for another thread, or where no timer is set."""
        waits = timeout is None or (self.at_work and timeout > 0)
        ready = super().select(_THREAD_S if waits else 0)
        if not ready and waits:
            raise RuntimeError("everything waits, and for nothing that could come")
        if not ready:
            self.now += timeout or 0
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Starts at 0 seconds. Not for sockets."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def run_in_executor(  # type: ignore[override]  # not narrower than what asyncio and we call
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a thread, for which the clock stands still."""

        def back(_: object) -> None:
            self._jumping.at_work -= 1

        self._jumping.at_work += 1
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        future.add_done_callback(back)
        return future

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._jumping.now

    def spend(self, seconds: float) -> None:
        """Move the clock on."""
        self._jumping.now += seconds


def spend(seconds: float) -> None:
    """Let time pass without giving way to anybody, as work does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.spend(seconds)


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
