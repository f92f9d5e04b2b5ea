"""The client for code on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

import httpx
from pydantic import BaseModel

from structured_server.client.answers import Decision
from structured_server.client.asking import (
    DEFAULT_URL,
    PATHS,
    Dialect,
    Server,
    checked_json,
    connection_error,
    decision_of,
    question_ids,
    request_body,
)
from structured_server.client.errors import ClientError
from structured_server.client.questions import Questions
from structured_server.client.replies import body_of, names_of, ready_of
from structured_server.client.retrying import Attempts

M = TypeVar("M", bound=BaseModel)


class AsyncClient:
    """Asks a server for decisions. It is closed at the end of an `async with`.

    `timeout` is how long a call waits for the server in all, in seconds; its retries share it. What may pass
    is sent again, `max_retries` times at most and as the server asks. A token goes to this origin only.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        auth: httpx.Auth | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
        dialect: Dialect = "decide",
        transport: httpx.AsyncBaseTransport | None = None,
        trust_env: bool = True,
    ) -> None:
        self._server = Server.at(url)
        self._timeout, self._retries, self._dialect = timeout, max_retries, dialect
        self._http = httpx.AsyncClient(
            auth=self._server.auth(token, auth),
            transport=transport,
            trust_env=trust_env,
            timeout=timeout,
            # Whoever asks bounds what is sent at once; a pool of its own would only let requests wait unseen.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    @overload
    async def decide(self, state: Any, questions: type[M], **options: Any) -> Decision[M | None]: ...
    @overload
    async def decide(self, state: Any, questions: Questions, **options: Any) -> Decision[None]: ...
    async def decide(
        self,
        state: Any,
        questions: Questions | type[BaseModel],
        *,
        model: str | None = None,
        deadline_ms: int | None = None,
        metadata: Mapping[str, str] | None = None,
        images: Sequence[str] = (),
        **read: Any,
    ) -> Decision[Any]:
        """Answer questions about a state: text, or JSON. Further options are those of `read`.

        Raises:
            ClientError: there is no decision.
            ValueError: something cannot be sent.
        """
        body = request_body(
            state,
            questions,
            dialect=self._dialect,
            model=model,
            deadline_ms=deadline_ms,
            metadata=metadata,
            images=list(images),
            read=read,
        )
        return decision_of(await self.decide_body(body), questions)

    async def decide_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request as it is, and return the reply as it is.

        Raises:
            ClientError: there is no reply, or it is an error.
            ValueError: the body is no JSON.
        """
        return await self._send("POST", PATHS[self._dialect], checked_json(body))

    @overload
    async def decide_many(
        self, states: Iterable[Any], questions: type[M], *, concurrency: int = 8, **options: Any
    ) -> list[Decision[M | None] | Exception]: ...
    @overload
    async def decide_many(
        self, states: Iterable[Any], questions: Questions, *, concurrency: int = 8, **options: Any
    ) -> list[Decision[None] | Exception]: ...
    async def decide_many(
        self,
        states: Iterable[Any],
        questions: Questions | type[BaseModel],
        *,
        concurrency: int = 8,
        **options: Any,
    ) -> Any:
        """Answer the same questions about many states, so many at once. The answers are in their order.

        In place of one that failed stands what was raised.

        Raises:
            BadQuestions: a field of the model cannot be a question.
        """
        question_ids(questions)
        found: dict[int, Decision[Any] | Exception] = {}
        waiting = enumerate(states)

        async def work() -> None:
            for number, state in waiting:
                try:
                    found[number] = await self.decide(state, questions, **options)
                except Exception as error:  # of one state, which must not lose the others
                    found[number] = error

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
        return [found[number] for number in sorted(found)]

    async def ready(self) -> dict[str, Any]:
        """Return what the server says of its readiness, whether it is ready or not. This is not retried.

        Raises:
            ClientError: it says nothing.
        """
        return ready_of(await self._once("GET", "/ready", None, self._timeout))

    async def models(self) -> list[str]:
        """Return the names of the models that are served.

        Raises:
            ClientError: the server does not say.
        """
        return names_of(await self._send("GET", "/v1/models", None))

    async def _send(self, method: str, path: str, content: bytes | None) -> dict[str, Any]:
        attempts = Attempts(self._timeout, self._retries)
        while True:
            try:
                return body_of(await self._once(method, path, content, attempts.left_s))
            except ClientError as error:
                wait = attempts.wait_s(error)
            await asyncio.sleep(wait)

    async def _once(self, method: str, path: str, content: bytes | None, timeout_s: float) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        try:
            # httpx counts its time anew with each piece that comes.
            async with asyncio.timeout(timeout_s):
                return await self._http.request(
                    method, self._server.url(path), content=content, headers=headers, timeout=timeout_s
                )
        except TimeoutError:
            raise connection_error(httpx.ReadTimeout(""), self._server, self._timeout) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise connection_error(error, self._server, self._timeout) from None
