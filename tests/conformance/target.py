"""The server under test, and the clients that talk to it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import httpx
from typesafe_sdk import AsyncTypeSafeClient, RetryPolicy, TypeSafeClient

MODEL = os.environ.get("CONFORMANCE_MODEL", "jev-latest")
TIMEOUT = float(os.environ.get("CONFORMANCE_TIMEOUT", "60"))
EXTRAS: dict[str, Any] = json.loads(os.environ.get("CONFORMANCE_EXTRAS", "{}"))
ONCE = RetryPolicy(max_retries=0)
# The SDKs send a key to every server; one without keys has to take whatever comes.
ANY_KEY = "sk-whatever"


@dataclass(frozen=True, slots=True)
class Target:
    """A server that claims to be compatible."""

    url: str
    key: str | None = None
    text_only: bool = False  # known to see no images, so that they must be refused

    @property
    def key_sent(self) -> str:
        """The key that clients send."""
        return self.key or ANY_KEY

    def sdk(self, **options: Any) -> TypeSafeClient:
        """Make the SDK's client: neither retries nor compression unless they are asked for."""
        return TypeSafeClient(**self._options(options))

    def async_sdk(self, **options: Any) -> AsyncTypeSafeClient:
        """Make the SDK's asynchronous client, likewise."""
        return AsyncTypeSafeClient(**self._options(options))

    def http(self, **headers: str) -> httpx.Client:
        """Make a client without an SDK; it sends the key and says that it sends JSON."""
        known = {"authorization": f"Bearer {self.key_sent}", "content-type": "application/json"}
        return httpx.Client(base_url=self.url, headers=known | headers, timeout=TIMEOUT)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "base_url": self.url,
            "api_key": self.key_sent,
            "model": MODEL,
            "retry": ONCE,
            "timeout": TIMEOUT,
            "compression": False,
        } | options
