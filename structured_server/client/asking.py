"""What the synchronous and the asynchronous client have in common: addresses, requests, and typed answers."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import httpx
from pydantic import BaseModel

from structured_server.client.answers import Decision, read_reply
from structured_server.client.errors import ClientError, TimedOut, UnexpectedReply, Unreachable
from structured_server.client.question_models import QuestionModel
from structured_server.client.questions import Questions, bodies_of

DEFAULT_URL = "http://127.0.0.1:8080"
Dialect = Literal["decide", "systemone"]
PATHS: dict[Dialect, str] = {"decide": "/v1/decide", "systemone": "/v1/systemone"}
SYSTEM_ONE_MODEL = "jev-latest"
"""The name that all System One servers answer to, whose requests must have one."""


class _Bearer(httpx.Auth):
    """Sends a token, and to one origin only."""

    def __init__(self, origin: httpx.URL, token: str) -> None:
        self._origin, self._token = _origin(origin), token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if _origin(request.url) == self._origin:
            request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


@dataclass(frozen=True, slots=True)
class Server:
    """A server's address: with or without /v1 at its end, behind a prefix or not."""

    base: httpx.URL

    @classmethod
    def at(cls, url: str) -> Server:
        """Read an address.

        Raises:
            ValueError: it is none; the message says what one looks like.
        """
        try:
            base = httpx.URL(url.strip().rstrip("/").removesuffix("/v1").rstrip("/"))
        except httpx.InvalidURL:
            base = httpx.URL("")
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(f"{url!r} is no address such as https://host or http://127.0.0.1:8080/v1.")
        return cls(base)

    @property
    def place(self) -> str:
        """The address for people, without what it may hold beside that."""
        return str(self.base.copy_with(userinfo=None, query=None, fragment=None))

    def url(self, path: str) -> httpx.URL:
        """Return the address of a path."""
        return self.base.copy_with(path=self.base.path.rstrip("/") + path)

    def auth(self, token: str | None, auth: httpx.Auth | None) -> httpx.Auth | None:
        """Return what authenticates requests: `auth`, or the token, for this origin alone.

        Raises:
            ValueError: both are given, or the token cannot be sent.
        """
        if token and auth:
            raise ValueError("give a token or an auth, not both.")
        if token and not (token.isascii() and token.isprintable()):
            raise ValueError("the token holds characters that no header can carry.")
        return _Bearer(self.base, token) if token else auth


def request_body(
    state: Any,
    questions: Questions | type[BaseModel],
    *,
    dialect: Dialect,
    model: str | None,
    deadline_ms: int | None,
    metadata: Mapping[str, str] | None,
    images: list[str] | None,
    read: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the JSON of a request; what is None is left out.

    Raises:
        BadQuestions: a field of the model cannot be a question.
        ValueError: the dialect has no word for something.
    """
    asked = question_model(questions).questions if isinstance(questions, type) else questions
    said: dict[str, Any] = {"model": model, "state": state, "questions": bodies_of(asked)}
    if dialect == "systemone":
        more = {"deadline_ms": deadline_ms, "metadata": metadata, "images": images, **read}
        if unknown := [name for name, value in more.items() if value]:
            raise ValueError(f"System One has no word for {', '.join(unknown)}.")
        return said | {"model": model or SYSTEM_ONE_MODEL}
    said |= {"deadline_ms": deadline_ms, "metadata": dict(metadata or {}) or None, "images": images or None}
    said |= {"read": {name: value for name, value in read.items() if value is not None} or None}
    return {name: value for name, value in said.items() if value is not None}


@lru_cache(64)
def question_model(model: type[BaseModel]) -> QuestionModel[BaseModel]:
    """Return a model's questions, taken apart once.

    Raises:
        BadQuestions: a field cannot be a question.
    """
    return QuestionModel(model)


def decision_of(raw: dict[str, Any], questions: Questions | type[BaseModel]) -> Decision[Any]:
    """Return a reply as a decision, with the model filled where one was the question set.

    Raises:
        UnexpectedReply: it is none.
    """
    reply = read_reply(raw)
    if missing := set(question_ids(questions)) - set(reply.answers):
        raise UnexpectedReply(f"the reply has no answer to {', '.join(sorted(missing))}.", 200)
    value = question_model(questions).value(reply) if isinstance(questions, type) else None
    return Decision(reply, value, raw)


def question_ids(questions: Questions | type[BaseModel]) -> list[str]:
    """Return the ids in order.

    Raises:
        BadQuestions: a field of the model cannot be a question.
    """
    return list(question_model(questions).questions if isinstance(questions, type) else questions)


def connection_error(error: Exception, server: Server, timeout_s: float) -> ClientError:
    """Return what a failure of httpx means."""
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return TimedOut(f"no answer from {server.place} within {timeout_s:g} s.")
    return Unreachable(f"cannot reach {server.place}: {str(error) or type(error).__name__}.")


def checked_json(body: Mapping[str, Any]) -> bytes:
    """Return a request's JSON.

    Raises:
        ValueError: it holds what JSON has no word for: the message names the type.
    """
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the request cannot be sent as JSON: {error}.") from None


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
