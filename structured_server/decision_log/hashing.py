"""Keyed hashes: whoever has the key can tell that two states are equal; nobody else can try guesses."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2b, sha256
from pathlib import Path

from structured_server.errors import SettingsError

SHORTEST_KEY = 16
"""Bytes."""


class KeyedHash:
    """BLAKE2b under a secret; `name` tells keys apart without saying anything about them."""

    def __init__(self, secret: bytes | None = None) -> None:
        """Take a secret, or make one that nobody knows."""
        self._key = sha256(secret or secrets.token_bytes(32)).digest()
        self.name = self._digest(b"name", (), size=4)

    def state(self, text: str, images: Iterable[tuple[str, bytes]] = ()) -> str:
        """Return the hash of a state with its images, as 32 hexadecimal digits."""
        parts = [text.encode("utf-8", "surrogatepass")]
        for media_type, data in images:
            parts += (media_type.encode(), data)
        return self._digest(b"state", parts)

    def prompt(self, prompts: Iterable[bytes]) -> str:
        """Return the hash of all that the model was shown, as 32 hexadecimal digits."""
        return self._digest(b"prompt", prompts)

    def _digest(self, what: bytes, parts: Iterable[bytes], *, size: int = 16) -> str:
        digest = blake2b(key=self._key, person=what, digest_size=size)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()


def load_key(file: str) -> KeyedHash:
    """Return the hash under the secret that a file holds; white space around it does not count.

    Raises:
        SettingsError: it cannot be read, or the secret is too short to be one.
    """
    try:
        secret = Path(file).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"the key file {file} cannot be read: {error.strerror}.") from None
    if len(secret) < SHORTEST_KEY:
        raise SettingsError(
            f"the key file {file} holds {len(secret)} bytes; {SHORTEST_KEY} are the least.",
            hint="Make one with: openssl rand -hex 32",
        )
    return KeyedHash(secret)
