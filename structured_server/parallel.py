"""Running coroutines at once, with one error instead of a group of them, and long work in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from structured_server.errors import StructuredServerError

T = TypeVar("T")

_LONG_WORK = ThreadPoolExecutor(2, thread_name_prefix="long-work")
"""So few because of the memory: a text of a million tokens takes some 70 MB while it is tokenised."""


async def in_a_thread(work: Callable[[], T]) -> T:
    """Do work in a thread that would keep others waiting. Two are busy at most; the rest is done in turn."""
    return await asyncio.get_running_loop().run_in_executor(_LONG_WORK, work)


async def together(coroutines: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Run coroutines at once and return their results in order.

    Raises:
        StructuredServerError: the first that one of them raised; the others are cancelled.
    """
    if len(coroutines) == 1:
        return [await coroutines[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except* StructuredServerError as failures:
        raise _first(failures) from None
    return [task.result() for task in tasks]


def _first(failures: BaseExceptionGroup[StructuredServerError]) -> StructuredServerError:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
