"""Asking one decision over HTTP: the only module of bulk labelling that knows the client.

AskError
├── Busy          429, or 503: the same request is welcome later
├── Failed        another 5xx, or no answer in time: this request may succeed when asked again
├── Refused       4xx: the request itself is wrong
├── Denied        401, 403: the key
└── Unreachable   no connection, or no answer that a structured-server gives
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import httpx

from structured_server.bulk.errors import BadInput
from structured_server.client import AsyncClient, ClientError, NotFound, Refusal, TimedOut, UnexpectedReply
from structured_server.google_auth import AuthError

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
        self, url: str, *, token: str | None = None, auth: httpx.Auth | None = None, timeout: float = 30.0
    ) -> None:
        try:
            # Retries are the run's business: it slows down for all rows where one is refused.
            self._client = AsyncClient(url, token=token, auth=auth, timeout=timeout, max_retries=0)
        except ValueError as error:
            raise BadInput(str(error)) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, body: Body) -> Body:
        """Return the answer.

        Raises:
            AskError: there is none.
        """
        try:
            answer = await self._client.decide_body(body)
            return {
                **answer,
                "answers": dict(answer["answers"]),
                "provenance": dict(answer["provenance"]),
            }
        except ClientError as error:
            raise _meaning(error) from None
        except AuthError as error:
            raise Denied(str(error)) from None
        except (KeyError, TypeError):
            raise Unreachable("what answers does not do so as a structured-server does.") from None
        except ValueError:
            raise Refused("invalid_text", "holds characters or numbers that JSON cannot carry.") from None


def _meaning(error: ClientError) -> AskError:
    """Return what an error means for a run of many requests."""
    if isinstance(error, TimedOut):
        return Failed("timeout", error.message)
    if isinstance(error, UnexpectedReply):
        if error.status in (429, 503):  # a proxy or a platform before the server
            return Busy(error.retry_after_s)
        if error.status in (401, 403):
            return Denied(f"{error.message} It wants another key or identity token.")
    if isinstance(error, NotFound) and error.code != "unknown_model":
        return Unreachable("there is no /v1/decide: what answers does not do so as a structured-server does.")
    if not isinstance(error, Refusal):
        return Unreachable(error.message)
    if error.status in (401, 403):
        return Denied(error.message)
    if error.status == 429 or (error.status in (503, 529) and error.code != ROW_BY_ROW):
        return Busy(error.retry_after_s, error.message)
    if error.status >= 500 or error.status == 408:
        return Failed(error.code, error.message)
    return Refused(error.code, error.message, error.path)
