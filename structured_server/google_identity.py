"""Callers by identity tokens that Google signed. The only file that knows google-auth."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from structured_server.errors import IdentityUnchecked, SettingsError

ISSUERS = ("accounts.google.com", "https://accounts.google.com")
ANYBODY = "*"
SERVICE_ACCOUNTS = ".iam.gserviceaccount.com"
LONGEST_TOKEN = 8192
THREADS = 2
FETCH_S = 5.0  # how long Google may take to hand out its certificates
FRESH_S = 3600.0  # Google changes them about daily, and publishes new ones long before they sign
STALE_S = 24 * 3600.0  # how long they serve while no newer ones can be had
PAUSE_S = 10.0  # after a failure, before they are asked for again

Claims = Mapping[str, Any]


class CertificatesMissing(Exception):
    """No certificates to check tokens with. It never leaves this module."""


class GoogleIdentities:
    """Knows callers by identity tokens for one audience, if they are among those who may call.

    `callers` are e-mail addresses, `@domain` for all of a domain, or `*`. The audience alone says nothing of
    who calls: whoever has any account at Google can have a token made for any audience. `verify` returns a
    token's claims once signature, time and audience are right, and raises otherwise.

    A domain's own accounts say so themselves (`hd`): a private account with an address there may be of
    somebody who left. Service accounts have no such claim, and nobody else has their addresses.
    """

    label = "google"

    def __init__(self, callers: Sequence[str], verify: Callable[[str], Claims]) -> None:
        self._callers = frozenset(caller.lower() for caller in callers)
        self._verify = verify
        # Of its own: while certificates are fetched nobody else's work in threads stands still.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="google-identity")

    async def name_of(self, token: str, /) -> str | None:
        """Return the caller's e-mail address, None where the token is none of Google's or not one to let in.

        Raises:
            IdentityUnchecked: Google's certificates cannot be had.
        """
        if token.count(".") != 2 or len(token) > LONGEST_TOKEN or not token.isascii():
            return None
        try:
            claims = await asyncio.get_running_loop().run_in_executor(self._threads, self._verify, token)
        except CertificatesMissing:
            raise IdentityUnchecked(
                "this identity token cannot be checked: Google's certificates cannot be had now.",
                hint="Send the request again after a moment.",
            ) from None
        except Exception:  # google-auth meets odd tokens with whatever its parsers raise
            return None
        email = claims.get("email")
        if claims.get("iss") not in ISSUERS or claims.get("email_verified") is not True:
            return None
        return email if isinstance(email, str) and self._may_call(email.lower(), claims.get("hd")) else None

    def _may_call(self, email: str, hosted: object) -> bool:
        _, at, domain = email.rpartition("@")
        names = {ANYBODY, email}
        if hosted == domain or domain.endswith(SERVICE_ACCOUNTS):
            names.add(f"@{domain}")
        return bool(at) and not self._callers.isdisjoint(names)


class _Reply(Protocol):
    @property
    def status(self) -> int: ...


class KeptCertificates:
    """Google's certificates as google-auth fetches them, through `fetch` and kept for an hour.

    Where no newer ones can be had the old ones serve for a day. One thread fetches, the others wait for it.
    """

    def __init__(self, fetch: Callable[..., _Reply], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[_Reply, float] | None = None
        self._tried_at: float | None = None

    def __call__(self, url: str, method: str = "GET", **_: object) -> _Reply:
        """Return the reply to a GET of the certificates.

        Raises:
            CertificatesMissing: there are none.
        """
        with self._lock:
            now = self._clock()
            kept = self._kept
            if kept is not None and now - kept[1] < FRESH_S:
                return kept[0]
            if self._tried_at is None or now - self._tried_at >= PAUSE_S:
                self._tried_at = now
                try:
                    reply = self._fetch(url, method=method, timeout=FETCH_S)
                except Exception:  # whatever its transport raises, there are none
                    reply = None
                if reply is not None and reply.status == 200:
                    self._kept = reply, now
                    return reply
            if kept is not None and now - kept[1] < STALE_S:
                return kept[0]
            raise CertificatesMissing


@dataclass(frozen=True, slots=True)
class GoogleVerifier:
    """Checks signature, time and audience with google-auth."""

    audience: str
    certificates: Any  # a google.auth.transport.Request

    def __call__(self, token: str) -> Claims:
        """Return a token's claims; raises whatever is wrong with it."""
        from google.oauth2 import id_token

        claims: Claims = id_token.verify_token(token, self.certificates, audience=self.audience)
        return claims


def google_identities(audience: str, callers: Sequence[str]) -> GoogleIdentities:
    """Return who knows callers by tokens for this audience.

    Raises:
        SettingsError: google-auth is not installed.
    """
    try:
        from google.auth.transport.requests import Request
        from google.oauth2 import id_token  # noqa: F401  its absence is told at the start, not to a caller
    except ImportError:
        raise SettingsError(
            "--google-audience needs google-auth: pip install 'structured-server[gcp]'."
        ) from None
    return GoogleIdentities(callers, GoogleVerifier(audience, KeptCertificates(Request())))
