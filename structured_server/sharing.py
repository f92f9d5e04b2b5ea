"""Identical work in flight is done once: whoever asks while it runs gets its result too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


class Sharing(Generic[T]):
    """Work in flight, by what it is about. It is cancelled when the last one who waits for it leaves."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    def has(self, about: Hashable) -> bool:
        """Tell whether such work is in flight."""
        return about in self._flights

    async def do(self, about: Hashable, start: Callable[[], Coroutine[None, None, T]]) -> tuple[T, bool]:
        """Return the work's result, and whether somebody else had started it.

        What it raises, all who wait for it are raised.
        """
        flight = self._flights.get(about)
        joined = flight is not None
        if flight is None:
            flight = self._flights[about] = _Flight(asyncio.ensure_future(start()))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task), joined
        finally:
            flight.waiting -= 1
            if self._flights.get(about) is flight and (flight.task.done() or not flight.waiting):
                del self._flights[about]
            if flight.task.done() and not flight.task.cancelled():
                flight.task.exception()  # seen, also where everybody has just left
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                await asyncio.wait((flight.task,))
