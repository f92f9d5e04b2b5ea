"""What every folder of tests shares: the real engine, the oracle, and how many tests they judged."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from structured_server.tokenizer import LoadedTokenizer
from tests.engine import server
from tests.engine.server import Engine, Oracle
from tests.gemma import diffusion_gemma_tokenizer
from tests.proxy import Proxy, embedded_server

# A property says what must hold, not how soon: a busy machine is slow now and then.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell's background job is started with Ctrl-C ignored, and all that it starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
WITH_ENGINE = (HERE / "engine", HERE / "e2e", HERE / "inprocess" / "real")


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the real engine, give it time for a start, and put what ends the shared one last."""
    for item in items:
        if any(folder in item.path.parents for folder in WITH_ENGINE):
            item.add_marker("engine")
            item.add_marker(pytest.mark.timeout(server.START_LIMIT + 120))
    items.sort(key=lambda item: "doomed_engine" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests ran against the real engine."""
    ran = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.nodeid.startswith(("tests/engine/", "tests/e2e/"))
    ]
    terminalreporter.write_line(f"{len(ran)} of these tests ran against the real vLLM server")


@pytest.fixture(scope="session")
def gemma() -> LoadedTokenizer:
    """A Gemma-size tokenizer with DiffusionGemma's control tokens."""
    return diffusion_gemma_tokenizer()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Share one server; a test that ends one starts its own."""
    engine = server.shared_engine()
    yield engine
    engine.stop()


@pytest.fixture
def doomed_engine(engine: Engine) -> Engine:
    """Hand out the shared server to be ended: a test that asks for it runs after all others."""
    return engine


@pytest.fixture(scope="session")
def start_engine() -> Iterator[Callable[..., Engine]]:
    """Start servers as `server.start_engine` does, and end them all after the last test."""
    started: list[Engine] = []

    def start(*arguments: object, **settings: object) -> Engine:
        started.append(server.start_engine(*arguments, **settings))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for engine in started:
        engine.stop()


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Read with transformers in process, on the shared server's checkpoint."""
    server.require_engine()
    oracle = Oracle(server.default_checkpoint())
    yield oracle
    oracle.close()


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A server with the embedded model, which wants no key."""
    with embedded_server(tmp_path_factory.mktemp("embedded") / "log") as proxy:
        yield proxy


@pytest.fixture(scope="session")
def embedded_url(embedded: Proxy) -> str:
    """Its URL."""
    return embedded.url
