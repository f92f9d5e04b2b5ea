"""The real server with the embedded model, shared by all tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy import Proxy, launch_proxy


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that is ready at every width, and asks for the key `secret`."""
    proxy = launch_proxy(
        tmp_path_factory.mktemp("embedded") / "log",
        ("--backend", "embedded", "--log-level", "warning", "--api-key", "secret"),
    )
    try:
        proxy.wait_until_ready()
        yield proxy.url
    finally:
        proxy.stop()


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The same without a key."""
    proxy = launch_proxy(
        tmp_path_factory.mktemp("open") / "log", ("--backend", "embedded", "--log-level", "warning")
    )
    try:
        proxy.wait_until_ready()
        yield proxy
    finally:
        proxy.stop()
