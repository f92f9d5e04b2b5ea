"""What performs reads. Everything above this package knows a backend only by the protocol below."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.errors import UpstreamRejected


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the way to readiness: its name and what it waits for."""

    name: str
    waits_for: str


@dataclass(frozen=True, slots=True)
class Generation:
    """Tokens that the model wrote; `stopped` tells whether the token that ends them came."""

    ids: tuple[int, ...]
    stopped: bool


@dataclass(frozen=True, slots=True)
class Relayed:
    """An engine's own reply to a chat request, handed on as it comes."""

    status: int
    media_type: str
    pieces: AsyncIterator[bytes]


class Single:
    """What a backend that is one engine says to those who ask where to go."""

    def route(self, _key: bytes, *, avoid: Engine | None = None) -> Self:  # noqa: ARG002 the protocol's
        """Return itself."""
        return self

    def given_up(self) -> None:
        """Do nothing: there is no other to go to."""


class ReadsOnly(Single):
    """What a backend that does not write says to those who ask it to, although its capabilities say so."""

    async def generate(self, _prompt: Prompt, _tokens: int, _stop: int) -> Generation:
        """Refuse.

        Raises:
            UpstreamRejected: always.
        """
        raise UpstreamRejected("this backend does not generate.")

    def chat(self, _body: bytes) -> AbstractAsyncContextManager[Relayed]:
        """Refuse.

        Raises:
            UpstreamRejected: always.
        """
        raise UpstreamRejected("this backend takes no chat requests.")


class NotReady(Exception):
    """A step of `Backend.prepare` failed; the message says what is wrong and what would be right.

    It never leaves the readiness monitor: callers see `Loading`.
    """


class Engine(Protocol):
    """What reads and writes."""

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Perform the reads at once and return them in order; on failure cancel the rest.

        Raises:
            UpstreamError: a read failed.
            CallerError: the images cannot be seen, or leave no room. No other exception leaves this method.
        """

    async def generate(self, prompt: Prompt, tokens: int, stop: int, /) -> Generation:
        """Have the model write up to so many tokens, or up to the token `stop`, which is left out.

        Asked only of backends whose capabilities have `generation`.

        Raises:
            UpstreamError: it failed.
        """

    def chat(self, body: bytes, /) -> AbstractAsyncContextManager[Relayed]:
        """Send a chat request to the engine and hold its reply open.

        Asked only of backends whose capabilities have `chat`. Entering and reading raise `UpstreamError`.
        """

    def given_up(self) -> None:
        """Take note that somebody waited for a reply in vain, and has left."""


class Backend(Engine, Protocol):
    """One engine or several. These members are all that the rest of the server uses."""

    @property
    def name(self) -> str:
        """What answers name it by."""

    @property
    def capabilities(self) -> Capabilities:
        """What reads may ask for now; widths may grow while the engine warms up."""

    def route(self, key: bytes, /, *, avoid: Engine | None = None) -> Engine:
        """Return the engine for a decision whose prompts begin with `key`; not `avoid` if there is another.

        Raises:
            UpstreamUnreachable: there is none at the moment.
        """

    def prepare(self) -> AsyncIterator[Step]:
        """Check everything that could make answers wrong, yielding each step as it begins.

        When the iteration ends the backend is ready.

        Raises:
            NotReady: a step failed.
        """

    async def watch(self) -> str:
        """Return once the backend is lost, with what happened to it."""

    async def close(self) -> None:
        """Release connections."""
