"""What can be wrong with a real engine is found, named, and never answered over."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from structured_server.core.tokens import Tokenizer
from tests.e2e.expected import expected_probabilities
from tests.engine.server import (
    SOURCES,
    VENV,
    Engine,
    Oracle,
    checkpoint,
    default_checkpoint,
    free_port,
    require_engine,
    start_engine,
)
from tests.golden.requests import TRIAGE
from tests.proxy import Proxy

pytestmark = pytest.mark.timeout(900)

ASKED = {"state": "502 spike", "questions": TRIAGE, "read": {"samples": 1}}
ENGINE_LIMIT = 300.0


@contextmanager
def _engine(port: int, model: Path, canvas: int = 64, extra: Sequence[str] = ()) -> Iterator[Engine]:
    engine = start_engine(model, canvas, port, extra, wait=False)
    try:
        yield engine
    finally:
        engine.kill()


def _assert_refuses_at_once(proxy: Proxy, *said: str) -> None:
    """Live, not ready, and a decision is refused within 50 ms (the best of five) with the same words."""
    assert 200 == proxy.get("/live").status_code
    seconds = []
    with httpx.Client(base_url=proxy.url, timeout=10) as client:
        replies = []
        for _ in range(5):
            begun = time.monotonic()
            replies.append(client.post("/decide", json=ASKED))
            seconds.append(time.monotonic() - begun)
    for reply in replies:
        assert (503, "loading") == (reply.status_code, reply.json()["error"]["code"])
        for words in said:
            assert words in reply.json()["error"]["message"]
    assert 0.05 > min(seconds), seconds


def _kill_while_it_reads(proxy: Proxy, engine: Engine) -> float:
    """Kill the engine: each decision in flight is an error, none is an answer. Return when it was killed."""
    body = {**ASKED, "read": {"samples": 32}}
    with ThreadPoolExecutor(4) as threads:
        replies = [threads.submit(proxy.decide, body) for _ in range(4)]
        time.sleep(0.2)
        engine.kill()
        killed = time.monotonic()
        statuses = {reply.result().status_code for reply in replies}
    assert {502, 503} >= statuses
    return killed


@pytest.fixture(scope="module")
def port() -> int:
    """The port where one wrong engine after the other is started."""
    return free_port()


@pytest.fixture(scope="module")
def watching(port: int, start_proxy: Callable[..., Proxy]) -> Proxy:
    """One server that is there before its engine and outlives several."""
    require_engine()
    return start_proxy(f"http://127.0.0.1:{port}")


def test_an_engine_that_is_not_there_yet_is_waited_for(watching: Proxy) -> None:
    said = watching.wait_until(lambda said: said["problem"] is not None)
    assert "engine" == said["step"]
    assert "nothing answers" in said["problem"]
    time.sleep(1.0)
    assert said["seconds"] + 0.9 < watching.readiness()["seconds"]
    _assert_refuses_at_once(watching, "nothing answers")


def test_an_engine_with_a_narrower_canvas_is_named(watching: Proxy, port: int) -> None:
    with _engine(port, default_checkpoint(), canvas=32):
        said = watching.wait_until(lambda said: said["step"] == "contract", ENGINE_LIMIT)
        said = watching.wait_until(lambda said: said["problem"] is not None)
        assert "the engine's canvas is 32 tokens" in said["problem"]
        assert "--canvas 64" in said["problem"]
        _assert_refuses_at_once(watching, "the engine's canvas is 32 tokens")
    watching.wait_until(lambda said: said["step"] == "engine")


def test_an_engine_with_another_tokenizer_is_named(watching: Proxy, port: int) -> None:
    other = checkpoint("--sliding-window", "128", "--tokenizer-seed", "1")
    with _engine(port, other):
        said = watching.wait_until(
            lambda said: said["step"] == "tokenizer" and said["problem"] is not None, ENGINE_LIMIT
        )
        assert "this server's tokenizer is not the engine's" in said["problem"]
        _assert_refuses_at_once(watching, "this server's tokenizer is not the engine's")


def test_an_engine_that_ignores_seeded_canvases_is_named(
    watching: Proxy, port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = tmp_path_factory.mktemp("plain")
    command = [VENV / "bin" / "python", SOURCES / "make_plain_checkpoint.py", default_checkpoint(), plain]
    subprocess.run(command, check=True, capture_output=True)
    with _engine(port, plain):
        said = watching.wait_until(
            lambda said: said["step"] == "contract" and said["problem"] is not None, ENGINE_LIMIT
        )
        assert "ignores seeded canvases" in said["problem"]
        _assert_refuses_at_once(watching, "ignores seeded canvases")


def test_the_right_engine_makes_it_ready_and_its_death_unready(
    watching: Proxy, port: int, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    """Started after all the wrong ones; killed while it serves; found out within two seconds.

    It samples by its model's own defaults, as published checkpoints do: reads must not be cut by them.
    """
    defaults = ["--override-generation-config", '{"top_k": 2, "top_p": 0.3}']
    with _engine(port, default_checkpoint(), extra=defaults) as engine:
        watching.wait_until(lambda said: said["ready"], ENGINE_LIMIT)
        time.sleep(1)
        reply = watching.decide(ASKED)
        assert 200 == reply.status_code
        for name, expected in expected_probabilities(ASKED, 1, checkpoint_tokenizer, oracle).items():
            found = list(reply.json()["answers"][name]["probabilities"].values())
            assert pytest.approx(expected, abs=1e-4) == found
        killed = _kill_while_it_reads(watching, engine)
        said = watching.wait_until(lambda said: not said["ready"], 5)
        assert 2 > time.monotonic() - killed
        assert "engine" == said["step"]
        # The first look may have been under way when the connection was closed.
        watching.wait_until(lambda said: "nothing answers" in str(said["problem"]), 5)
        _assert_refuses_at_once(watching, "nothing answers")
    metrics = watching.get("/metrics").text
    assert "structured_server_ready 0.0" in metrics
    assert "structured_server_engine_losses_total 1.0" in metrics
