"""Who may come in: by one of the keys, or by an identity that somebody else vouches for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Protocol

from structured_server.errors import MissingKey, RateLimited, WrongKey
from structured_server.keys.limits import RateLimiter
from structured_server.keys.ring import Key, digest_of, matching


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in: the name for logs and fairness, a label that no caller chooses, and the key's salt."""

    name: str
    label: str
    cache_salt: str = ""


class Identities(Protocol):
    """Somebody who knows callers by tokens that are not ours."""

    @property
    def label(self) -> str:
        """What all of them are counted under."""

    async def name_of(self, token: str, /) -> str | None:
        """Return the name of who sent the token, None where it is no such token or not one to let in.

        Raises:
            IdentityUnchecked: it cannot be told now.
        """


def _today() -> date:
    return datetime.now(UTC).date()


class Gate:
    """Lets in whoever has a key of the file, one of the `fixed` keys, or an identity.

    With none of them asked for it is open to everybody. A file makes it closed, whatever it holds.
    """

    def __init__(
        self,
        fixed: Sequence[str] = (),
        *,
        identities: Identities | None = None,
        limiter: RateLimiter | None = None,
        today: Callable[[], date] = _today,
    ) -> None:
        self._fixed = tuple(
            Key(f"api-key-{number}", digest_of(key.encode(errors="surrogateescape")))
            for number, key in enumerate(fixed, 1)
        )
        self._filed: tuple[Key, ...] | None = None
        self._identities = identities
        self._limiter = limiter or RateLimiter()
        self._today = today

    @property
    def open(self) -> bool:
        """Whether everybody may come in."""
        return not self._fixed and self._filed is None and self._identities is None

    def use_file(self, keys: tuple[Key, ...]) -> None:
        """Take these keys in place of those that the file had before."""
        self._filed = keys
        self._limiter.keep({key.name for key in keys})

    async def admit(self, authorization: str | None) -> Admitted:
        """Return whose request it is, by its `Authorization` header.

        Raises:
            MissingKey: it has none.
            WrongKey: its key is not one that is taken, or no longer.
            RateLimited: the key has been used too often.
            IdentityUnchecked: it may be an identity, and that cannot be told now.
        """
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise MissingKey("this server wants an API key: send it as `Authorization: Bearer KEY`.")
        # A header's bytes come as Latin-1, whatever they are.
        key = matching((*self._fixed, *(self._filed or ())), digest_of(token.encode("latin-1", "replace")))
        if key is not None:
            return self._admit_key(key)
        name = await self._identities.name_of(token) if self._identities else None
        if name is None or self._identities is None:
            raise WrongKey("this API key is not one of the server's.")
        return Admitted(name, self._identities.label)

    def _admit_key(self, key: Key) -> Admitted:
        if key.expired(self._today()):
            raise WrongKey("this API key has expired.")
        if key in self._fixed:
            return Admitted(key.name, "api-key")
        if limit := key.requests_per_minute:
            seconds = self._limiter.take(key.name, limit)
            if seconds:
                raise RateLimited(
                    f"this API key may make {limit} requests a minute.",
                    retry_after_s=max(1, math.ceil(seconds)),
                    hint="Send the request again after that.",
                )
        return Admitted(key.name, key.name, key.cache_salt)
