"""How often a key may be used: a bucket of tokens for each name, which time fills."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass

MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float  # seconds on the clock


class RateLimiter:
    """Token buckets by name. `clock` gives seconds and never goes back.

    A bucket holds a minute's requests, so that many may come at once. Over any `s` seconds at most
    `per_minute * (1 + s / 60)` are let through.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, name: str, per_minute: int) -> float:
        """Take a token, and return 0; or, where there is none, the seconds until there is one."""
        now = self._clock()
        bucket = self._buckets.setdefault(name, _Bucket(per_minute, now))
        filled = bucket.tokens + (now - bucket.at) * per_minute / MINUTE_S
        bucket.tokens, bucket.at = min(float(per_minute), filled), now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) * MINUTE_S / per_minute
        bucket.tokens -= 1
        return 0.0

    def keep(self, names: Container[str]) -> None:
        """Forget all other names. Those that stay go on with what they have left."""
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if name in names}
