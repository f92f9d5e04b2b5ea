"""Running coroutines at once, with one error instead of a group of them, and long work in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from structured_server.errors import StructuredServerError, let_go

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
    tasks: list[asyncio.Task[T]] = []
    first: StructuredServerError | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        first = _first(failures)
        if first is None:
            raise
        let_go(failures)
    if first is None:
        return [task.result() for task in tasks]
    try:
        raise first
    finally:
        del first, tasks, group  # they hold the error or the task that ends with it, which hold this frame


def _first(failures: BaseExceptionGroup[BaseException]) -> StructuredServerError | None:
    """Return the first of the errors, None where one of them is not ours: then none of them may hide it."""
    leaves = list(_leaves(failures))
    ours = [each for each in leaves if isinstance(each, StructuredServerError)]
    return ours[0] if len(ours) == len(leaves) else None


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from _leaves(each)
    else:
        yield failure
