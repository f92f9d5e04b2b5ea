"""Plain chat through this server: what a real vLLM itself says to it, without what it refuses or dies of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from tests.engine.server import MAX_MODEL_LEN, Engine
from tests.golden.requests import TRIAGE
from tests.proxy import Proxy

CHAT = "/v1/chat/completions"
RAW = "/v1/raw/chat/completions"
TOKENS = 8
QUICK = {"diffusion_max_steps": 1}  # a canvas in one step instead of dozens
ENDLESS: dict[str, Any] = {"max_tokens": 3000, "vllm_xargs": {}}  # keeps the engine busy for tens of seconds

REFUSED_BY_THE_ENGINE = {
    "temperature": 0,
    "seed": 7,
    "min_p": 0.1,
    "min_tokens": 2,
    "logit_bias": {"700": 5},
    "bad_words": ["pager"],
    "allowed_token_ids": [700, 701],
}
GRAMMARS = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    "structured_outputs": {"choice": ["yes", "no"]},
    "guided_json": {"type": "object"},
    "guided_choice": ["yes", "no"],
    "guided_regex": "[a-z]+",
    "guided_grammar": "root ::= 'a'",
}
DEADLY: dict[str, dict[str, Any]] = {
    "echo": {"echo": True, "logprobs": True, "top_logprobs": 1},
    "prompt_logprobs": {"prompt_logprobs": 1},
    "prompt_logprobs none": {"prompt_logprobs": 0},
    "prompt_logprobs false": {"prompt_logprobs": False},
}


def _body(**given: Any) -> dict[str, Any]:
    """Build a request whose reply has always the same number of tokens, whatever they are."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What now?"}]
    told = {"messages": messages, "max_tokens": TOKENS, "ignore_eos": True, "vllm_xargs": QUICK}
    return {"model": "dgemma", **told, **given}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Speak HTTP to whichever server."""
    with httpx.Client(timeout=300) as client:
        yield client


def _shape(value: Any) -> Any:
    """Return a JSON value with its kinds in place of what it says."""
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, list) else type(value).__name__


def _chunks(reply: httpx.Response) -> list[dict[str, Any]]:
    """Return the events of a stream but the last, which must say that it is done."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    *events, end = reply.text.removesuffix("\n\n").split("\n\n")
    assert "data: [DONE]" == end
    return [json.loads(each.removeprefix("data: ")) for each in events]


def _refusal(reply: httpx.Response) -> dict[str, Any]:
    assert 400 == reply.status_code, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


def _metric(text: str, start: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))


def _running(client: httpx.Client, engine: Engine) -> float:
    return _metric(client.get(f"{engine.url}/metrics").text, "vllm:num_requests_running{")


def _wait_until(condition: Callable[[], bool], limit: float) -> bool:
    end = time.monotonic() + limit
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return met


@pytest.mark.parametrize("path", [CHAT, RAW])
def test_a_completion_is_what_the_engine_gives(
    proxy: Proxy, engine: Engine, client: httpx.Client, path: str
) -> None:
    ours, own = client.post(proxy.url + path, json=_body()), client.post(engine.url + CHAT, json=_body())
    assert (200, 200) == (ours.status_code, own.status_code)
    assert own.headers["content-type"] == ours.headers["content-type"]
    assert _shape(own.json()) == _shape(ours.json())
    assert "dgemma" == ours.json()["model"]
    for counted in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert own.json()["usage"][counted] == ours.json()["usage"][counted]
    assert ["length"] == [each["finish_reason"] for each in ours.json()["choices"]]
    assert ours.headers["x-request-id"]


def test_a_stream_is_what_the_engine_gives(proxy: Proxy, engine: Engine, client: httpx.Client) -> None:
    asked = _body(stream=True, stream_options={"include_usage": True}, max_tokens=100)
    ours, own = (_chunks(client.post(url + CHAT, json=asked)) for url in (proxy.url, engine.url))
    assert [_shape(each) for each in own] == [_shape(each) for each in ours]
    assert {"chat.completion.chunk"} == {each["object"] for each in ours}
    assert own[-1]["usage"] == ours[-1]["usage"]
    assert 100 == ours[-1]["usage"]["completion_tokens"]
    assert "length" == ours[-2]["choices"][0]["finish_reason"]


@pytest.mark.parametrize("wanted", [{"max_tokens": 3}, {"max_tokens": None, "max_completion_tokens": 70}])
def test_as_many_tokens_come_as_are_asked_for(
    proxy: Proxy, client: httpx.Client, wanted: dict[str, int | None]
) -> None:
    reply = client.post(proxy.url + CHAT, json=_body(**wanted)).json()
    assert [*wanted.values()][-1] == reply["usage"]["completion_tokens"]


@pytest.mark.parametrize("name", REFUSED_BY_THE_ENGINE)
def test_what_the_engine_refuses_of_diffusion_models_is_left_out(
    proxy: Proxy, engine: Engine, client: httpx.Client, name: str
) -> None:
    asked = _body(**{name: REFUSED_BY_THE_ENGINE[name]})
    assert (
        "not yet supported with diffusion" in _refusal(client.post(engine.url + CHAT, json=asked))["message"]
    )
    reply = client.post(proxy.url + CHAT, json=asked)
    assert 200 == reply.status_code, reply.text
    assert TOKENS == reply.json()["usage"]["completion_tokens"]


def test_what_a_common_client_sends_is_answered(proxy: Proxy, client: httpx.Client) -> None:
    usual = {"top_p": 0.9, "top_k": 5, "frequency_penalty": 0.5, "presence_penalty": 0.5, "user": "u"}
    asked = _body(**REFUSED_BY_THE_ENGINE, **usual, response_format={"type": "text"}, n=2, model="jev-latest")
    reply = client.post(proxy.url + CHAT, json=asked)
    assert 200 == reply.status_code, reply.text
    assert [0, 1] == [each["index"] for each in reply.json()["choices"]]


@pytest.mark.parametrize("name", GRAMMARS)
def test_grammars_are_refused_with_what_to_do_instead(proxy: Proxy, client: httpx.Client, name: str) -> None:
    error = _refusal(client.post(proxy.url + CHAT, json=_body(**{name: GRAMMARS[name]})))
    assert ("invalid_request_error", name) == (error["type"], error["param"])
    assert "/v1/decisions" in error["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", DEADLY)
def test_what_ends_the_engine_is_refused(
    proxy: Proxy, engine: Engine, client: httpx.Client, name: str, stream: bool
) -> None:
    error = _refusal(client.post(proxy.url + CHAT, json=_body(**DEADLY[name], stream=stream)))
    assert name.split()[0] == error["param"]
    assert 200 == engine.health()


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": [{"role": "user", "content": "word " * (MAX_MODEL_LEN + 100)}]},
        {"max_tokens": MAX_MODEL_LEN + 1},
        {"max_tokens": 0},
        {"stop": 7},
        {"top_logprobs": 2},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    ],
    ids=["prompt", "max_tokens", "no tokens", "stop", "top_logprobs", "tools"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_engines_own_refusals_are_handed_on(
    proxy: Proxy, engine: Engine, client: httpx.Client, wrong: dict[str, Any], stream: bool
) -> None:
    asked = _body(**wrong, stream=stream)
    ours, own = (client.post(url + CHAT, json=asked) for url in (proxy.url, engine.url))
    assert 400 <= own.status_code < 500
    assert (own.status_code, own.headers["content-type"]) == (ours.status_code, ours.headers["content-type"])
    assert own.json() == ours.json()


def test_another_model_is_not_sent_to_the_engine(proxy: Proxy, client: httpx.Client) -> None:
    reply = client.post(proxy.url + CHAT, json=_body(model="gpt-4"))
    assert (404, "model_not_found") == (reply.status_code, reply.json()["error"]["code"])


@pytest.mark.parametrize("stream", [False, True], ids=["waiting", "reading"])
def test_a_client_that_hangs_up_frees_the_engine_and_its_permit(
    proxy: Proxy, engine: Engine, client: httpx.Client, stream: bool
) -> None:
    assert 0 == _running(client, engine)
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=120)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", CHAT, json.dumps(_body(**ENDLESS, stream=stream)), headers)
        assert _wait_until(lambda: 1 == _running(client, engine), 60)
        if stream:  # it comes as it is written
            assert connection.getresponse().readline().startswith(b"data: ")
            assert 1 == _running(client, engine)
    assert _wait_until(lambda: not _running(client, engine), 10)
    permits = "structured_server_permits_in_use"
    assert _wait_until(lambda: not _metric(client.get(f"{proxy.url}/metrics").text, permits), 5)


def test_decisions_are_made_while_the_engine_writes(proxy: Proxy, client: httpx.Client) -> None:
    asked = {"state": "", "questions": TRIAGE, "read": {"samples": 1}, "deadline_ms": 60_000}
    alone = proxy.decide(asked).json()["answers"]
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(client.post, proxy.url + CHAT, json=_body(max_tokens=1000))
        meanwhile = 0
        while not writing.done():
            found = proxy.decide(asked).json()["answers"]
            meanwhile += not writing.done()
            for name, each in alone.items():
                assert pytest.approx(each["probabilities"], abs=1e-4) == found[name]["probabilities"]
    assert 1000 == writing.result().json()["usage"]["completion_tokens"]
    assert meanwhile > 0
