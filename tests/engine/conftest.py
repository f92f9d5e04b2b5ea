"""Clients of the shared server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.engine.reads import Post, Row, read, rows
from tests.engine.server import Engine


@pytest.fixture(scope="session")
def client(engine: Engine) -> Iterator[httpx.Client]:
    """Speak HTTP to the shared server."""
    with httpx.Client(base_url=engine.url, timeout=40) as client:
        yield client


@pytest.fixture(scope="session")
def post(client: httpx.Client) -> Post:
    """Send a completion request to the shared server."""
    return lambda body: client.post("/v1/completions", json=body)


@pytest.fixture(scope="session")
def plain(post: Post) -> list[Row]:
    """Give the rows of the plain read, to compare others with."""
    return rows(post(read()))


@pytest.fixture(scope="session")
def vocabulary(engine: Engine) -> int:
    """Count the entries of the shared server's vocabulary."""
    config = json.loads((engine.model_dir / "config.json").read_text())
    size: int = config["text_config"]["vocab_size"]
    return size
