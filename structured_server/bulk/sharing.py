"""Equal requests are asked once: those under way share an answer, and recent answers are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

KEPT = 1024

T = TypeVar("T")


class Sharing(Generic[T]):
    """Makes each value once for a key, and keeps the `most` that were wanted last. Errors are not kept."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, T] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Future[T]] = {}

    async def get(self, key: bytes, make: Callable[[], Awaitable[T]]) -> T:
        """Return the value of a key; an error that making it raises is raised for all who wait."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if (waiting := self._under_way.get(key)) is not None:
            return await asyncio.shield(waiting)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        try:
            value = await make()
        except asyncio.CancelledError:
            future.cancel()
            raise
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # seen, even where nobody else waits
            raise
        finally:
            del self._under_way[key]
        future.set_result(value)
        self._kept[key] = value
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return value
