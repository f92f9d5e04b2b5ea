"""Threads between the event loop and blocking work: a queue that is worked on in batches, and one-off jobs.

Nothing here knows what the work is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from structured_server.errors import UpstreamUnreachable

Item = TypeVar("Item")
Result = TypeVar("Result")

CLOSING_S = 10.0
ENDED = "the thread that reads has ended."


class WorkerLost(Exception):
    """The work cannot go on in this thread; the message says why. It ends the worker."""


@dataclass(slots=True, eq=False)
class _Pending(Generic[Item, Result]):
    item: Item
    future: Future[Result] = field(default_factory=Future)


class Worker(Generic[Item, Result]):
    """A thread that works on items in order of arrival, taking all pending items of one kind together.

    What arrives while it works waits for the next turn. An item whose future is cancelled before its turn is
    never worked on.
    """

    def __init__(
        self, work: Callable[[Sequence[Item]], Sequence[Result]], kind: Callable[[Item], object]
    ) -> None:
        """Start the thread. Items are of one kind where `kind` gives equal values."""
        self._work = work
        self._kind = kind
        self._pending: deque[_Pending[Item, Result]] = deque()
        self._changed = threading.Condition()
        self._ended: str | None = None
        self._lost: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name="reads", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> str | None:
        """Why it takes no more items, None while it does."""
        return self._ended

    def submit(self, items: Sequence[Item]) -> list[Future[Result]]:
        """Put items in line, all at once, and return what will hold their results.

        Raises:
            UpstreamUnreachable: the worker has ended.
        """
        pending = [_Pending[Item, Result](item) for item in items]
        with self._changed:
            if self._ended is not None:
                raise UpstreamUnreachable(self._ended)
            self._pending.extend(pending)
            self._changed.notify()
        return [each.future for each in pending]

    async def lost(self) -> str:
        """Return once the worker has ended by itself, with the reason."""
        return await asyncio.shield(asyncio.wrap_future(self._lost))

    async def close(self) -> None:
        """End the worker after the batch that it is at; what is still in line fails."""
        self._end("the server is closing.")
        await in_thread(lambda: self._thread.join(CLOSING_S))

    def _run(self) -> None:
        reason = ENDED
        try:
            while batch := self._take():
                self._perform(batch)
        except WorkerLost as lost:
            reason = str(lost)
        finally:
            if self._end(reason):
                self._lost.set_result(reason)

    def _take(self) -> list[_Pending[Item, Result]]:
        """Wait for items and take those of the oldest one's kind; nothing once the worker is to end."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._pending or self._ended is not None)
                if self._ended is not None:
                    return []
                kind = self._kind(self._pending[0].item)
                same = [each for each in self._pending if self._kind(each.item) == kind]
                for each in same:
                    self._pending.remove(each)
                if batch := [each for each in same if each.future.set_running_or_notify_cancel()]:
                    return batch

    def _perform(self, batch: Sequence[_Pending[Item, Result]]) -> None:
        try:
            results = self._work([each.item for each in batch])
            done = list(zip(batch, results, strict=True))
        except Exception as error:
            if isinstance(error, WorkerLost):
                _fail(batch, UpstreamUnreachable(str(error)))
                raise
            _fail(batch, error)
        except BaseException:
            _fail(batch, UpstreamUnreachable(ENDED))
            raise
        else:
            for each, result in done:
                each.future.set_result(result)

    def _end(self, reason: str) -> bool:
        """Refuse new items and fail those in line; return whether the worker was still alive."""
        with self._changed:
            if self._ended is not None:
                return False
            self._ended = reason
            left = [each for each in self._pending if each.future.set_running_or_notify_cancel()]
            self._pending.clear()
            self._changed.notify()
        _fail(left, UpstreamUnreachable(reason))
        return True


def _fail(batch: Sequence[_Pending[Item, Result]], error: BaseException) -> None:
    for each in batch:
        each.future.set_exception(error)


async def in_thread(job: Callable[[], Result]) -> Result:
    """Run a job in a thread of its own and return its result.

    Unlike `asyncio.to_thread` it does not hold up the end of the process, which minutes of loading would.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # whoever waits gets it
            future.set_exception(error)

    threading.Thread(target=run, name="job", daemon=True).start()
    return await asyncio.shield(asyncio.wrap_future(future))
