"""Servers as users start them, with the embedded model, for real clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.clients.node import Node, require_node
from tests.proxy import Proxy, launch_proxy

KEY = "sk-of-the-server"
ALIAS = "gpt-6-luna"

Serve = Callable[..., AbstractContextManager[Proxy]]


@contextmanager
def _serving(log: Path, *arguments: str) -> Iterator[Proxy]:
    proxy = launch_proxy(log, ["--backend", "embedded", *arguments])
    try:
        proxy.wait_until(lambda said: said["ready"])
        yield proxy
    finally:
        proxy.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Start a server of one's own, with flags."""
    return partial(_serving, tmp_path / "log")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with shipped defaults."""
    with _serving(tmp_path_factory.mktemp("server") / "log") as proxy:
        yield proxy.url


@pytest.fixture(scope="session")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that wants `KEY`, and whose model also answers to `ALIAS`."""
    with _serving(
        tmp_path_factory.mktemp("keyed") / "log", "--api-key", KEY, "--model-alias", ALIAS
    ) as proxy:
        yield proxy.url


@pytest.fixture(autouse=True)
def no_client_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the developer's own environment may tell a client."""
    for name in ("TYPESAFE", "OPENAI", "SYSTEM_ONE"):
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Node with the JavaScript client; skip the test where they are absent, fail it in CI."""
    return require_node(tmp_path_factory.mktemp("node"))
