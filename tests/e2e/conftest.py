"""The real server process before the real engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from tests.engine.server import CANVAS, Engine, default_checkpoint, require_engine
from tests.proxy import Proxy, launch_proxy


@pytest.fixture(scope="session")
def start_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Proxy]]:
    """Start servers before an engine's URL, and end them all after the last test."""
    started: list[Proxy] = []

    def start(upstream: str, arguments: Sequence[str] = ()) -> Proxy:
        log = tmp_path_factory.mktemp("proxy") / "log"
        settings = ["--upstream", upstream, "--model", "dgemma", "--tokenizer", str(default_checkpoint())]
        started.append(launch_proxy(log, [*settings, "--canvas", str(CANVAS), *arguments]))
        return started[-1]

    yield start
    for proxy in started:
        proxy.stop()


@pytest.fixture(scope="session")
def proxy(engine: Engine, start_proxy: Callable[..., Proxy]) -> Proxy:
    """One ready server before the shared engine."""
    proxy = start_proxy(engine.url)
    proxy.wait_until_ready()
    return proxy


@pytest.fixture(scope="session")
def checkpoint_tokenizer() -> LoadedTokenizer:
    """The tokenizer of the shared engine's checkpoint."""
    require_engine()
    return load_tokenizer(str(default_checkpoint()))
