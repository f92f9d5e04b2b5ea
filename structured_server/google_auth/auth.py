"""Authentication for httpx: tokens that are renewed in time, and that go to one server only."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator

import httpx

from structured_server.google_auth import sources
from structured_server.google_auth.errors import AuthError
from structured_server.google_auth.origins import is_loopback, origin
from structured_server.google_auth.sources import Token

MARGIN_S = 300.0
"""A token is renewed so long before its end, or for the last tenth of a short one's life."""

CLOUD_RUN_HEADER = "X-Serverless-Authorization"


class _Kept:
    """The token in use. One is made at a time, whoever waits for it."""

    def __init__(self, make: Callable[[], Token]) -> None:
        self._make = make
        self._token: Token | None = None
        self._lock = threading.Lock()

    def current(self) -> str:
        """Return a token that lasts, made now where there is none.

        Raises:
            AuthError: there is none.
        """
        return self.another("")

    def another(self, refused: str) -> str:
        """Return a token that lasts and is not the one that was refused.

        One that ends soon serves on while no other is to be had.

        Raises:
            AuthError: there is none.
        """
        with self._lock:
            token = self._token
            if token is None or token.value == refused or self._ends_soon(token):
                try:
                    token = self._token = self._make()
                except AuthError:
                    if token is None or token.value == refused or time.time() >= token.ends:
                        raise
            return token.value

    def ready(self) -> str | None:
        """Return the token in use where it lasts: without waiting for anything."""
        token = self._token
        return None if token is None or self._ends_soon(token) else token.value

    @staticmethod
    def _ends_soon(token: Token) -> bool:
        margin = min(MARGIN_S, (token.ends - token.made) / 10)
        return time.time() > token.ends - margin


class _TokenAuth(httpx.Auth):
    """Sends a token to one origin, over TLS, and never to this machine itself."""

    header = "Authorization"

    def __init__(self, url: str, make: Callable[[], Token]) -> None:
        self._url = httpx.URL(url)
        if not is_loopback(self._url) and self._url.scheme != "https":
            raise AuthError(
                f"tokens are not sent over {self._url.scheme}: the address must begin with https://."
            )
        self._kept = _Kept(make)

    def _wanted(self, request: httpx.Request) -> bool:
        return not is_loopback(request.url) and origin(request.url) == origin(self._url)

    def _show(self, request: httpx.Request, token: str) -> None:
        request.headers[self.header] = f"Bearer {token}"

    def _refused(self, response: httpx.Response) -> bool:
        return response.status_code == 401

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Send the request with a token, and once more with another where that one was refused."""
        if not self._wanted(request):
            yield request
            return
        token = self._kept.current()
        self._show(request, token)
        response = yield request
        if self._refused(response) and (other := self._kept.another(token)) != token:
            self._show(request, other)
            yield request

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same on an event loop, which goes on while a token is made."""
        if not self._wanted(request):
            yield request
            return
        token = self._kept.ready()
        if token is None:
            token = await asyncio.to_thread(self._kept.current)
        self._show(request, token)
        response = yield request
        if not self._refused(response):
            return
        other = await asyncio.to_thread(self._kept.another, token)
        if other != token:
            self._show(request, other)
            yield request


class IdentityAuth(_TokenAuth):
    """Shows Cloud Run's front end who asks. The server's own API `key`, if it has one, goes beside that.

    The audience is the address's scheme and host, unless another is given. With a `key`, use a client that
    follows no redirects, as ours does: httpx itself takes only `Authorization` off them.

    Raises:
        AuthError: the address is not one that tokens are sent to.
    """

    def __init__(
        self, url: str, *, audience: str | None = None, impersonate: str | None = None, key: str | None = None
    ) -> None:
        aimed = audience or audience_of(httpx.URL(url))
        super().__init__(url, lambda: sources.identity_token(aimed, impersonate))
        self._key = key
        self.header = CLOUD_RUN_HEADER if key else "Authorization"

    def _wanted(self, request: httpx.Request) -> bool:
        if self._key and origin(request.url) == origin(self._url):
            request.headers["Authorization"] = f"Bearer {self._key}"
        return super()._wanted(request)

    def _refused(self, response: httpx.Response) -> bool:
        # Our server, which speaks JSON, refuses its API key.
        return super()._refused(response) and "json" not in response.headers.get("content-type", "")


def audience_of(url: httpx.URL) -> str:
    """Return whom tokens for Cloud Run are for: the service, also at the address of a tag (tag---service)."""
    host = url.netloc.decode("ascii").rpartition("@")[2]
    if url.host.endswith(".run.app"):
        host = host.rpartition("---")[2]
    return f"{url.scheme}://{host}"


class AccessTokenAuth(_TokenAuth):
    """Shows Google's APIs, Vertex AI among them, who asks.

    Raises:
        AuthError: the address is not one that tokens are sent to.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, sources.access_token)
