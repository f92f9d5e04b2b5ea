"""Asking one decision over HTTP: the only module of bulk labelling that knows httpx.

AskError
├── Busy          429, or 503: the same request is welcome later
├── Failed        another 5xx, or no answer in time: this request may succeed when asked again
├── Refused       4xx: the request itself is wrong
├── Denied        401, 403: the key
└── Unreachable   no connection, or no answer that a structured-server gives
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Protocol, Self

import httpx

from structured_server.bulk.errors import BadInput

Body = dict[str, Any]
ROW_BY_ROW = "draws_missing"  # a 503 about one request rather than about the server


class AskError(Exception):
    """There is no answer to a request."""


class Busy(AskError):
    """The server has no room now; `retry_after` in seconds, None where it does not say."""

    def __init__(self, retry_after: float | None, message: str = "the server is busy.") -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Failed(AskError):
    """The server failed on this request."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refused(AskError):
    """The request itself is wrong; `path` is the field."""

    def __init__(self, code: str, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.path = path


class Denied(AskError):
    """The server lets nobody in with this key."""


class Unreachable(AskError):
    """No connection, or no answer that a structured-server gives."""


class Asker(Protocol):
    """Whoever can answer the body of `POST /decide`."""

    async def ask(self, body: Body) -> Body:
        """Return the answer.

        Raises:
            AskError: there is none.
        """
        ...


class HttpAsker:
    """Asks a server; an asynchronous context that holds its connections.

    Raises:
        BadInput: the URL or the token cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        auth: httpx.Auth | None = None,
        timeout: float = 30.0,
        connections: int = 16,
    ) -> None:
        self._base = url.rstrip("/").removesuffix("/v1")
        try:
            known = httpx.URL(self._base)
        except httpx.InvalidURL as error:
            raise BadInput(f"--url {url} is no URL: {error}.") from None
        if known.scheme not in ("http", "https") or not known.host:
            raise BadInput(f"--url {url} must begin with http:// or https:// and name a host.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise BadInput("the token holds characters that no header can carry.")
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.AsyncClient(
            auth=auth,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            limits=limits,
        )
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def ask(self, body: Body) -> Body:
        """Return the answer.

        Raises:
            AskError: there is none.
        """
        try:
            reply = await self._client.post(f"{self._base}/decide", json=body)
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            raise Failed("timeout", f"no answer from {self._base} within {self._timeout:g} s.") from None
        except httpx.HTTPError as error:
            raise Unreachable(f"cannot reach {self._base}: {str(error) or type(error).__name__}.") from None
        except (ValueError, RecursionError):
            raise Refused("invalid_text", "holds characters or numbers that JSON cannot carry.") from None
        return self._read(reply)

    def _read(self, reply: httpx.Response) -> Body:
        try:
            said = reply.json()
            if reply.is_success:
                answer: Body = {
                    **said,
                    "answers": dict(said["answers"]),
                    "provenance": dict(said["provenance"]),
                }
                return answer
            error = said["error"]
            code, path = str(error["code"]), tuple(error.get("path") or ())
            message = " ".join(filter(None, (error["message"], error.get("hint"))))
        except (ValueError, KeyError, TypeError):
            if reply.status_code in (429, 503):  # a proxy or a platform before the server
                raise Busy(_seconds(reply)) from None
            if reply.status_code in (401, 403):
                raise Denied(
                    f"{self._base} answered {reply.status_code}: it wants another key or identity token."
                ) from None
            raise Unreachable(
                f"{self._base} answered {reply.status_code}, not as a structured-server does."
            ) from None
        if reply.status_code in (401, 403):
            raise Denied(message)
        if reply.status_code == 429 or (reply.status_code == 503 and code != ROW_BY_ROW):
            raise Busy(_seconds(reply), message)
        if reply.status_code >= 500 or reply.status_code == 408:
            raise Failed(code, message)
        raise Refused(code, message, path)


def _seconds(reply: httpx.Response) -> float | None:
    """Return what Retry-After asks for: seconds or a date (RFC 9110, 10.2.3)."""
    said = reply.headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdecimal():
        return float(said)
    try:
        when = parsedate_to_datetime(said)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
