"""What the real server says about itself, and how it comes and goes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.engine.reads import FIRST_PLAIN, PROMPT, Post, Row, draw, read, rows
from tests.engine.server import MAX_MODEL_LEN, Engine


def metric(client: httpx.Client, name: str) -> float:
    """Add up all samples of one of the engine's metrics."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def running(client: httpx.Client) -> float:
    """Count the requests that the engine is working on."""
    return metric(client, "num_requests_running")


def completed(client: httpx.Client) -> float:
    """Count the requests that the engine has finished."""
    return metric(client, "request_success_total")


def generation() -> dict[str, Any]:
    """Build a request that keeps the engine busy for many seconds: plain generation, canvas after canvas."""
    return {"model": "dgemma", "prompt": PROMPT, "max_tokens": 3000}


@pytest.fixture(scope="module")
def own(start_engine: Callable[..., Engine]) -> tuple[Engine, list[int | None]]:
    """A server of our own and every /health status that it showed while starting."""
    engine = start_engine(wait=False)
    seen = [engine.health()]
    while engine.process.poll() is None and seen[-1] != 200:
        time.sleep(0.1)
        seen.append(engine.health())
    engine.wait_until_ready()
    return engine, seen


class TestServer:
    """What the server says about itself and does around reads."""

    def test_an_unknown_model_is_404(self, post: Post) -> None:
        assert 404 == post(read(model="no-such-model")).status_code

    def test_the_model_may_be_left_out(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(without=("model",))))

    def test_models_gives_the_context_length_but_not_the_canvas_length(self, client: httpx.Client) -> None:
        (model,) = client.get("/v1/models").json()["data"]
        assert ("dgemma", MAX_MODEL_LEN) == (model["id"], model["max_model_len"])
        assert "canvas" not in json.dumps(model)

    def test_version_gives_the_version_that_this_contract_was_written_for(self, client: httpx.Client) -> None:
        assert {"version": "0.32.0"} == client.get("/version").json()

    def test_tokenize_gives_ids(self, client: httpx.Client) -> None:
        body = {"model": "dgemma", "prompt": "yes<turn|>", "add_special_tokens": False}
        yes, close = client.post("/tokenize", json=body).json()["tokens"]
        assert yes >= FIRST_PLAIN
        assert 106 == close

    def test_cached_tokens_come_in_whole_blocks_of_32(self, post: Post) -> None:
        body = read(prompt=draw(100, seed=5))
        cached = [post(body).json()["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
        assert [0, 96] == cached

    def test_native_systemone_reads_once_a_question(self, client: httpx.Client) -> None:
        noul = {"type": "noul", "instructions": "Is it urgent?"}
        before = completed(client)
        reply = client.post(
            "/v1/systemone",
            json={"model": "dgemma", "state": "HTTP 502", "questions": {"a": noul, "b": noul, "c": noul}},
        )
        assert {"a", "b", "c"} == set(reply.json()["answers"])
        assert 3 == completed(client) - before

    def test_a_client_that_hangs_up_frees_its_request(self, engine: Engine, client: httpx.Client) -> None:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{engine.url}/v1/completions", json=generation(), timeout=1)
        end = time.monotonic() + 2
        while running(client) and time.monotonic() < end:
            time.sleep(0.05)
        assert 0 == running(client)


class TestEnd:
    """How a server comes and goes; on one of our own, since it does not survive."""

    def test_nothing_listens_while_the_server_loads(self, own: tuple[Engine, list[int | None]]) -> None:
        _, seen = own
        assert [None] * (len(seen) - 1) + [200] == seen

    def test_echo_with_logprobs_ends_the_engine(self, own: tuple[Engine, list[int | None]]) -> None:
        engine, _ = own
        assert 500 == httpx.post(f"{engine.url}/v1/completions", json=read(echo=True), timeout=40).status_code
        assert engine.health() in (503, None)
        assert engine.process.wait(20) is not None
        assert engine.health() is None

    def test_a_request_in_flight_fails_or_is_forgotten_when_the_server_is_told_to_stop(
        self, doomed_engine: Engine
    ) -> None:
        """A race: vLLM kills its engine process right after asking it to end. It may also be done by then."""
        outcome: list[int | None] = []

        def generate() -> None:
            try:
                body = generation()
                outcome.append(
                    httpx.post(f"{doomed_engine.url}/v1/completions", json=body, timeout=4).status_code
                )
            except httpx.TransportError:
                outcome.append(None)

        thread = Thread(target=generate)
        thread.start()
        with httpx.Client(base_url=doomed_engine.url) as client:
            while not running(client):
                time.sleep(0.05)
        doomed_engine.process.send_signal(signal.SIGTERM)
        thread.join()
        assert outcome in ([500], [None], [200])
        assert doomed_engine.health() is None
        doomed_engine.kill()
