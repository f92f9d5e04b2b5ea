"""Tasks that hold permits, to see who comes in when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structured_server.admission import DEFAULT_LANE, Admission, Lane, Weight

NOTHING = Weight(0, 0)
ONE = Weight(16, 1)


class Crowd:
    """Tasks that each hold a permit for a while; `log` tells who came in, in order."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.log: list[str] = []

    def comes(
        self,
        name: str,
        weight: Weight = ONE,
        *,
        extra: bool = False,
        lane: Lane = DEFAULT_LANE,
        seconds: float = 1.0,
    ) -> asyncio.Task[None]:
        """Let somebody ask for a permit."""
        return asyncio.create_task(self._hold(name, weight, extra, lane, seconds), name=name)

    async def _hold(self, name: str, weight: Weight, extra: bool, lane: Lane, seconds: float) -> None:
        async with self.admission.permit(weight, extra=extra, lane=lane):
            self.log.append(name)
            await asyncio.sleep(seconds)


@asynccontextmanager
async def crowd(
    positions: int = 1024, reads: int = 1, *, max_waiting: int = 64, max_wait_s: float = math.inf
) -> AsyncIterator[Crowd]:
    """Give a crowd, and check at the end that nothing leaked."""
    admission = Admission(Weight(positions, reads), max_waiting=max_waiting, max_wait_s=max_wait_s)
    yield Crowd(admission)
    await asyncio.sleep(1000)
    assert NOTHING == admission.in_use
    assert 0 == admission.waiting
