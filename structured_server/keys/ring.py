"""A key as this server knows it, and finding the one that was sent. Pure: no clock, no I/O."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

KEY_PREFIX = "ssk_"  # so that scanners for leaked secrets, and people, know one when they see it
KEY_BYTES = 32
DIGEST_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its name, which is no secret, and its SHA-256.

    A plain digest keeps a key of 256 random bits: nobody can try them all, so there is nothing that salt and
    a slow hash, which passwords need, would add. A key that people thought up does not belong into the file.
    """

    name: str
    digest: bytes
    requests_per_minute: int | None = None
    expires: date | None = None  # the first day, in UTC, on which it is no longer taken
    salted: bool = False  # whether the engine keeps its prefixes apart from those of other keys

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError("a name is 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit")
        if len(self.digest) != DIGEST_BYTES:
            raise ValueError(f"a SHA-256 has {DIGEST_BYTES} bytes")
        if self.requests_per_minute is not None and self.requests_per_minute < 1:
            raise ValueError("requests_per_minute must be at least 1")

    @property
    def cache_salt(self) -> str:
        """What the engine salts its prefix cache with, "" for nothing. It tells nothing of the key."""
        return hashlib.sha256(b"cache salt\0" + self.digest).hexdigest() if self.salted else ""

    def expired(self, today: date) -> bool:
        """Tell whether it is no longer taken."""
        return self.expires is not None and today >= self.expires


def new_key() -> str:
    """Make a key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(key: bytes) -> bytes:
    """Return what is kept of a key."""
    return hashlib.sha256(key).digest()


def matching(keys: Sequence[Key], digest: bytes) -> Key | None:
    """Return the key with this digest.

    All are compared, each in constant time, so that how long it takes does not tell which one it is.
    """
    matches = [hmac.compare_digest(digest, key.digest) for key in keys]
    found = [key for key, match in zip(keys, matches, strict=True) if match]
    return found[0] if found else None
