"""The client for code that waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class Client:
    """Asks a server for decisions. One may be used by several threads; it is closed at the end of a `with`.

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
        transport: httpx.BaseTransport | None = None,
        trust_env: bool = True,
    ) -> None:
        self._server = Server.at(url)
        self._timeout, self._retries, self._dialect = timeout, max_retries, dialect
        self._http = httpx.Client(
            auth=self._server.auth(token, auth), transport=transport, trust_env=trust_env, timeout=timeout
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @overload
    def decide(self, state: Any, questions: type[M], **options: Any) -> Decision[M | None]: ...
    @overload
    def decide(self, state: Any, questions: Questions, **options: Any) -> Decision[None]: ...
    def decide(
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
        return decision_of(self.decide_body(body), questions)

    def decide_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request as it is, and return the reply as it is.

        Raises:
            ClientError: there is no reply, or it is an error.
            ValueError: the body is no JSON.
        """
        return self._send("POST", PATHS[self._dialect], checked_json(body))

    @overload
    def decide_many(
        self, states: Iterable[Any], questions: type[M], *, concurrency: int = 8, **options: Any
    ) -> list[Decision[M | None] | Exception]: ...
    @overload
    def decide_many(
        self, states: Iterable[Any], questions: Questions, *, concurrency: int = 8, **options: Any
    ) -> list[Decision[None] | Exception]: ...
    def decide_many(
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

        def one(state: Any) -> Decision[Any] | Exception:
            try:
                return self.decide(state, questions, **options)
            except Exception as error:  # of one state, which must not lose the others
                return error

        with ThreadPoolExecutor(concurrency) as threads:
            return list(threads.map(one, states))

    def ready(self) -> dict[str, Any]:
        """Return what the server says of its readiness, whether it is ready or not. This is not retried.

        Raises:
            ClientError: it says nothing.
        """
        return ready_of(self._once("GET", "/ready", None, self._timeout))

    def models(self) -> list[str]:
        """Return the names of the models that are served.

        Raises:
            ClientError: the server does not say.
        """
        return names_of(self._send("GET", "/v1/models", None))

    def _send(self, method: str, path: str, content: bytes | None) -> dict[str, Any]:
        attempts = Attempts(self._timeout, self._retries)
        while True:
            try:
                return body_of(self._once(method, path, content, attempts.left_s))
            except ClientError as error:
                wait = attempts.wait_s(error)
            time.sleep(wait)

    def _once(self, method: str, path: str, content: bytes | None, timeout: float) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        try:
            return self._http.request(
                method, self._server.url(path), content=content, headers=headers, timeout=timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise connection_error(error, self._server, self._timeout) from None
