"""The HTTP connection to one vLLM server. No aiohttp exception leaves this module."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import aiohttp

from structured_server import tracing
from structured_server.backends import Relayed
from structured_server.backends.vllm.connections import Broken, Closed, Connections, Reply
from structured_server.backends.vllm.messages import error_message
from structured_server.errors import UpstreamFailed, UpstreamRejected, UpstreamTimeout, UpstreamUnreachable

_CREDENTIALS = re.compile(r"//[^/?#]*@")

PASSING = frozenset({408, 425, 429})
"""Statuses of the 4xx with which routers say that it is not the request that is wrong."""


class Client:
    """Keep-alive connections to one base URL, opened on first use.

    `url` is for messages: a name and a password that stand in it are sent, and never shown.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._base = url.rstrip("/").removesuffix("/v1")
        self.url = _CREDENTIALS.sub("//", self._base, count=1)
        self._timeout_s = timeout_s
        self._connections: Connections | None = None
        self._session: aiohttp.ClientSession | None = None  # for replies that are handed on as they come

    async def get(self, path: str, *, timeout_s: float | None = None) -> Reply:
        """Send a GET.

        Raises:
            UpstreamUnreachable: no connection, or one that broke.
            UpstreamTimeout: no reply in time.
        """
        return await self._send("GET", path, None, timeout_s, None)

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a POST of JSON.

        A kept-alive connection that the server had closed meanwhile is replaced once: reads change nothing,
        so sending one twice is safe. Redirects are not followed: a state goes nowhere but to this URL.

        Raises:
            UpstreamUnreachable: no connection, or one that broke.
            UpstreamTimeout: no reply in time.
        """
        try:
            return await self._send("POST", path, body, timeout_s, headers)
        except _StaleConnection:
            return await self._send("POST", path, body, timeout_s, headers)

    async def read(
        self,
        path: str,
        body: bytes,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a read and return the body of its 200.

        Raises:
            UpstreamRejected: a 4xx that will not pass.
            UpstreamFailed: any other status.
            UpstreamUnreachable: no connection, or one that broke.
            UpstreamTimeout: no reply in time.
        """
        reply = await self.post(path, body, timeout_s=timeout_s, headers=headers)
        if reply.status == 200:
            return reply.body
        if 400 <= reply.status < 500 and reply.status not in PASSING:
            raise UpstreamRejected(f"the engine refused the read with {reply.status}.")
        raise UpstreamFailed(f"the engine failed on the read with {reply.status}.")

    @asynccontextmanager
    async def stream(self, path: str, body: bytes, *, timeout_s: float) -> AsyncIterator[Relayed]:
        """Send a POST of JSON and hold its reply open, whatever its status.

        Raises:
            UpstreamUnreachable: no connection, or one that broke, before the reply or within it.
            UpstreamTimeout: nothing came for too long.
        """
        place = tracing.current()
        with _own_kinds(self.url, timeout_s):
            async with self._opened().request(
                "POST",
                self._base + path,
                data=body,
                headers={"traceparent": place.traceparent} if place else None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=timeout_s),
            ) as response:
                yield Relayed(
                    response.status,
                    response.headers.get("Content-Type", "application/json"),
                    response.content.iter_any(),
                )

    async def close(self) -> None:
        """Close all connections."""
        if self._connections is not None:
            self._connections.close()
        if self._session is not None:
            await self._session.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout_s: float | None,
        headers: Mapping[str, str] | None,
    ) -> Reply:
        seconds = self._timeout_s if timeout_s is None else timeout_s
        if place := tracing.current():
            headers = {**(headers or {}), "traceparent": place.traceparent}
        with _own_kinds(self.url, seconds):
            async with asyncio.timeout(seconds):
                if self._connections is None:
                    self._connections = Connections(self._base)
                return await self._connections.request(method, path, body, headers)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Admission bounds what is in flight; a second bound here would only hide the queue.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Content-Type": "application/json"},
                auto_decompress=True,
            )
        return self._session


class _StaleConnection(UpstreamUnreachable):
    """The server closed the connection before a byte of the reply came."""


@contextmanager
def _own_kinds(url: str, seconds: float) -> Iterator[None]:
    """Turn what connections and aiohttp raise into upstream errors."""
    try:
        yield
    except TimeoutError:
        raise UpstreamTimeout(f"the engine at {url} did not answer within {seconds:g} s.") from None
    except aiohttp.ClientConnectorError as error:
        raise _nothing_answers(url, error.os_error) from None
    except (Closed, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        raise _StaleConnection(f"the engine at {url} closed the connection.") from None
    except Broken as error:
        raise UpstreamUnreachable(f"the connection to the engine at {url} broke: {error}.") from None
    except OSError as error:
        raise _nothing_answers(url, error) from None
    except (aiohttp.ClientError, ValueError, RuntimeError) as error:
        # aiohttp raises ValueError on some malformed replies and RuntimeError once its session is closed.
        raise UpstreamUnreachable(
            f"the connection to the engine at {url} broke: {type(error).__name__}."
        ) from None


def _nothing_answers(url: str, error: OSError) -> UpstreamUnreachable:
    return UpstreamUnreachable(f"nothing answers at {url}: {error.strerror or type(error).__name__}.")


def explain(reply: Reply) -> str:
    """Return a reply's status and, where it has one, its error message, for readiness reports."""
    message = error_message(reply.body)
    return f"{reply.status} ({message[:200]})" if message else str(reply.status)
