"""When a request is sent again: only what may pass, as the server asks, never beyond the caller's time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from structured_server.client.errors import ClientError

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 8.0
LEAST_LEFT_S = 0.05


@dataclass(slots=True)
class Attempts:
    """The attempts at one request, which share its time."""

    timeout_s: float
    retries: int
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    made: int = 0
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.begun + self.timeout_s - self.clock()

    def wait_s(self, error: ClientError) -> float:
        """Return how long to wait before the next attempt.

        It doubles each time, and a random half of it keeps clients that failed together apart. What the
        server asks for is waited for in full.

        Raises:
            ClientError: this error, where no attempt is worth it.
        """
        self.made += 1
        if not error.retryable or self.made > self.retries:
            raise error
        growing = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (self.made - 1))
        wait = max(error.retry_after_s or 0.0, growing * (0.5 + self.chance() / 2))
        if wait + LEAST_LEFT_S > self.left_s:
            raise error
        return wait
