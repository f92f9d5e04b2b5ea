"""Running coroutines at once, with one error instead of a group of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from structured_server.errors import StructuredServerError

T = TypeVar("T")


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
