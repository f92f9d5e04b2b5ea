"""The application in process, before a backend that answers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from structured_server.api.app import create_app
from structured_server.api.service import assemble
from structured_server.backends import Backend
from structured_server.core.tokens import Tokenizer
from structured_server.settings import Settings
from tests.golden.record import Recorder
from tests.toy import LABELS, ToyTokenizer

PAIRS = (f"A{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = (*LABELS, *PAIRS, "minor", "major", "payments", "shipping", "other")

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@asynccontextmanager
async def serving(
    backend: Backend | None = None, tokenizer: Tokenizer | None = None, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve in process; the client gets 500s as responses, as a real one would."""
    known = Settings(upstream="http://engine", model="dgemma", log_level="error", **settings)
    app = create_app(assemble(known, tokenizer or ToyTokenizer(WORDS), backend or Recorder()))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.001)
        yield client


@pytest.fixture
def start() -> Start:
    """Start servers of one's own."""
    return serving


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a ready server."""
    async with serving() as client:
        yield client
