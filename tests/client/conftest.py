"""The real server with the embedded model that wants a key, shared by all tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy import embedded_server


@pytest.fixture(scope="session")
def keyed_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that asks for the key `secret`."""
    with embedded_server(tmp_path_factory.mktemp("keyed") / "log", "--api-key", "secret") as proxy:
        yield proxy.url
