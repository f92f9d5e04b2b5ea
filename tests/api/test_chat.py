"""Chat that asks for text: handed to the engine and back, without what a diffusion model has no use for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from structured_server.api.paths import CHAT as PATHS
from structured_server.backends import Relayed
from structured_server.backends.vllm import VllmBackend
from structured_server.errors import UpstreamTimeout, UpstreamUnreachable
from structured_server.wire.generation import GRAMMARS, REMOTE, WITHOUT_EFFECT
from structured_server.wire.systemone import MODELS
from tests.api.asking import CHAT
from tests.api.conftest import WORDS, Start, serving
from tests.fake_backend import FakeBackend
from tests.fake_engine import FakeEngine
from tests.serving import serving_http
from tests.toy_engine import ToyEngineTokenizer

HELLO: dict[str, Any] = {"model": "dgemma", "messages": [{"role": "user", "content": "Hello."}]}
IN_USE = 'structured_server_permits_in_use{unit="reads"}'


class Writing(FakeBackend):
    """An engine that writes piece by piece, each when it is told to."""

    def __init__(self, *pieces: bytes, status: int = 200, media_type: str = "text/event-stream") -> None:
        super().__init__(chat=True)
        self.pieces, self.status, self.media_type = pieces, status, media_type
        self.told = threading.Semaphore(0)
        self.open = False

    @asynccontextmanager
    async def chat(self, body: bytes) -> AsyncIterator[Relayed]:
        self.chats.append(body)
        self.open = True
        try:
            yield Relayed(self.status, self.media_type, self._written())
        finally:
            self.open = False

    async def _written(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            while not self.told.acquire(blocking=False):
                await asyncio.sleep(0.005)
            yield piece


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    assert true()


def in_use(url: str) -> float:
    """Return the reads for which permits are out."""
    metrics = httpx.get(f"{url}/metrics").text
    (line,) = [line for line in metrics.splitlines() if line.startswith(IN_USE)]
    return float(line.rpartition(" ")[2])


@pytest.fixture
def backend() -> FakeBackend:
    """A backend that echoes chat requests."""
    return FakeBackend(chat=True)


@pytest.fixture
async def client(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server before it."""
    async with serving(backend) as client:
        yield client


async def sent(client: httpx.AsyncClient, backend: FakeBackend, **fields: Any) -> dict[str, Any]:
    """Return what the engine got of a request with these fields."""
    reply = await client.post(CHAT, json=HELLO | fields)
    assert 200 == reply.status_code, reply.text
    got: dict[str, Any] = json.loads(backend.chats[-1])
    return got


# There and back


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Hello."}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}],
        [{"role": "system", "content": '{"tone": "brief"}'}, {"role": "user", "content": "Hello."}],
        [{"role": "system", "content": '["questions"]'}, {"role": "user", "content": "Hello."}],
        [{"role": "system", "content": None}, {"role": "user", "content": "Hello."}],
        [{"role": "user", "content": '{"questions": []}'}, {"role": "user", "content": "Hello."}],
        [{"role": "system", "content": '{"questions": []}'}, {"role": "assistant", "content": "Hello."}],
        [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}] * 2,
    ],
)
async def test_other_messages_go_to_the_engine_as_they_are(
    client: httpx.AsyncClient, backend: FakeBackend, path: str, messages: list[Any]
) -> None:
    body = {"model": "dgemma", "messages": messages, "max_tokens": 7, "stream": False}
    reply = await client.post(path, json=body)
    assert (200, body | {"temperature": 1.0}) == (reply.status_code, reply.json())
    assert [body | {"temperature": 1.0}] == list(map(orjson.loads, backend.chats))
    assert [] == backend.batches


@pytest.mark.parametrize(
    ("status", "media_type"),
    [(200, "text/event-stream"), (400, "application/json"), (503, "text/html; charset=utf-8")],
)
async def test_status_and_content_type_are_the_engines(start: Start, status: int, media_type: str) -> None:
    writing = Writing(b"<", b">", status=status, media_type=media_type)
    writing.told.release(2)
    async with start(writing) as client:
        reply = await client.post(CHAT, json=HELLO)
    assert (status, media_type, b"<>") == (reply.status_code, reply.headers["content-type"], reply.content)
    assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"]


def test_each_piece_is_handed_on_as_it_comes_and_a_permit_is_held_until_the_last() -> None:
    writing = Writing(b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n")
    with (
        serving_http(writing) as url,
        httpx.stream("POST", url + CHAT, json=HELLO | {"stream": True}) as reply,
    ):
        came = reply.iter_raw()
        for piece in writing.pieces:
            assert writing.open
            assert 1.0 == in_use(url)
            writing.told.release()
            assert piece == next(came)
        assert [] == list(came)
        wait_until(lambda: not writing.open)
        assert 0.0 == in_use(url)


def test_a_client_that_leaves_between_pieces_ends_the_engines_work_and_gives_the_permit_back() -> None:
    writing = Writing(b"data: 1\n\n", b"data: 2\n\n")
    with serving_http(writing) as url:
        with httpx.stream("POST", url + CHAT, json=HELLO) as reply:
            came = reply.iter_raw()
            writing.told.release()
            assert b"data: 1\n\n" == next(came)
            assert writing.open
            assert 1.0 == in_use(url)
        wait_until(lambda: not writing.open)
        wait_until(lambda: 0.0 == in_use(url))


def test_a_client_that_leaves_before_the_reply_gives_the_permit_back(backend: FakeBackend) -> None:
    backend.delay_s = 60
    with serving_http(backend) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + CHAT, json=HELLO, timeout=0.3)
        assert 1 == len(backend.chats)
        wait_until(lambda: 0.0 == in_use(url))


def test_a_reply_that_breaks_off_is_never_passed_off_as_whole(caplog: pytest.LogCaptureFixture) -> None:
    class Breaking(Writing):
        async def _written(self) -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            raise UpstreamUnreachable("the connection to the engine broke.")

    with serving_http(Breaking()) as url:
        with (
            pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
            httpx.stream("POST", url + CHAT, json=HELLO) as reply,
        ):
            assert [b"data: 1\n\n"] == list(reply.iter_raw())
        wait_until(lambda: 0.0 == in_use(url))
        metrics = httpx.get(f"{url}/metrics").text
    assert 'structured_server_upstream_errors_total{kind="unreachable"} 1.0' in metrics
    (said,) = [record for record in caplog.records if record.name == "structured_server.api.chat"]
    assert "a relayed reply broke off: the connection to the engine broke." == said.getMessage()
    assert all("unforeseen" not in record.getMessage() for record in caplog.records)


async def test_chat_takes_its_turn_with_reads(start: Start) -> None:
    """One read at a time: while the engine writes, none is made, and nobody may wait here."""
    writing = Writing(b"x")
    async with start(writing, max_reads=1, max_waiting=0) as client:
        reply = asyncio.create_task(client.post(CHAT, json=HELLO))
        while not writing.open:
            await asyncio.sleep(0.005)
        second = await client.post(CHAT, json=HELLO)
        assert (503, "overloaded", "1") == (
            second.status_code,
            second.json()["error"]["code"],
            second.headers["retry-after"],
        )
        writing.told.release()
        assert b"x" == (await reply).content


@pytest.mark.parametrize("failure", [UpstreamUnreachable("gone."), UpstreamTimeout("late.")])
async def test_an_engine_that_fails_before_it_replies_is_an_error_of_ours(
    client: httpx.AsyncClient, backend: FakeBackend, failure: Exception
) -> None:
    backend.generation_failure = failure
    reply = await client.post(CHAT, json=HELLO)
    assert (502, "engine_error") == (reply.status_code, reply.json()["error"]["code"])
    backend.generation_failure = None
    assert 200 == (await client.post(CHAT, json=HELLO)).status_code


async def test_a_request_reaches_a_vllm_server_and_its_reply_comes_back() -> None:
    async with FakeEngine(ToyEngineTokenizer(WORDS), model="dgemma") as engine:
        backend = VllmBackend(engine.url, model="dgemma", tokenizer=ToyEngineTokenizer(WORDS), canvas=64)
        async with serving(backend, ToyEngineTokenizer(WORDS)) as client:
            body = HELLO | {"max_tokens": 4, "top_p": 0.5, "temperature": 0}
            reply = await client.post(CHAT, json=body)
        assert (200, "application/json") == (reply.status_code, reply.headers["content-type"])
        assert 4 == reply.json()["usage"]["completion_tokens"]
        chats = [read.body for read in engine.reads if "messages" in read.body]
        assert [HELLO | {"max_tokens": 4, "temperature": 1.0}] == chats


# What is sent


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
async def test_what_has_no_effect_is_taken_out(
    client: httpx.AsyncClient, backend: FakeBackend, name: str
) -> None:
    assert HELLO | {"temperature": 1.0, "stop": ["x"]} == await sent(client, backend, **{name: 1}, stop=["x"])


@pytest.mark.parametrize("temperature", [0, 0.7, 2, None, "hot"])
async def test_the_temperature_is_the_one_that_an_engine_takes(
    client: httpx.AsyncClient, backend: FakeBackend, temperature: Any
) -> None:
    assert 1.0 == (await sent(client, backend, temperature=temperature))["temperature"]


@pytest.mark.parametrize("model", ["dgemma", "triage", *MODELS, None])
async def test_the_engine_is_asked_for_its_own_model(start: Start, model: str | None) -> None:
    backend = FakeBackend(chat=True)
    async with start(backend, model_alias=("triage",)) as client:
        assert "dgemma" == (await sent(client, backend, model=model))["model"]


async def test_another_model_is_not_found(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = await client.post(CHAT, json=HELLO | {"model": "gpt-9"})
    assert (404, "model_not_found") == (reply.status_code, reply.json()["error"]["code"])
    assert [] == backend.chats


# What is refused


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *(({name: {"x": 1}}, name) for name in GRAMMARS),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"tools": [{}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{}], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"echo": True}, "echo"),
        ({"echo": True, "logprobs": True}, "echo"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ],
)
async def test_grammars_and_what_ends_an_engine_are_refused(
    client: httpx.AsyncClient, backend: FakeBackend, fields: dict[str, Any], param: str
) -> None:
    reply = await client.post(CHAT, json=HELLO | fields)
    error = reply.json()["error"]
    assert (400, "invalid_request_error", param) == (reply.status_code, error["type"], error["param"])
    assert [] == backend.chats


@pytest.mark.parametrize("name", ["image_url", "video_url", "audio_url"])
@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "https://a.example/x.png", "file:///etc/passwd", "", None, 5]
)
@pytest.mark.parametrize("nested", [True, False])
async def test_nothing_is_fetched_from_an_address(
    client: httpx.AsyncClient, backend: FakeBackend, name: str, url: object, nested: bool
) -> None:
    part = {"type": name, name: {"url": url} if nested else url}
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]
    error = (await client.post(CHAT, json={"messages": messages})).json()["error"]
    assert f"messages.0.content.1.{name}" == error["param"]
    assert [] == backend.chats


@pytest.mark.parametrize("name", REMOTE)
async def test_no_engine_is_told_of_others(
    client: httpx.AsyncClient, backend: FakeBackend, name: str
) -> None:
    reply = await client.post(CHAT, json=HELLO | {name: {"remote_host": "10.0.0.1"}})
    assert 200 == reply.status_code
    assert name not in json.loads(backend.chats[0])


async def test_data_urls_go_to_the_engine(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    reply = await client.post(CHAT, json={"messages": [{"role": "user", "content": [part]}]})
    assert 200 == reply.status_code
    assert [part] == json.loads(backend.chats[0])["messages"][0]["content"]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"response_format": None, "guided_json": None},
        {"tools": [{}], "tool_choice": "auto"},
        {"tool_choice": "required"},
        {"echo": False},
        {"prompt_logprobs": None},
    ],
)
async def test_what_asks_for_nothing_of_it_is_let_through(
    client: httpx.AsyncClient, backend: FakeBackend, fields: dict[str, Any]
) -> None:
    assert HELLO | fields | {"temperature": 1.0} == await sent(client, backend, **fields)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b'{"a": NaN}', b"\xff", b'{"a": ' + b"9" * 400 + b"}"]
)
async def test_what_is_no_object_is_refused(
    client: httpx.AsyncClient, backend: FakeBackend, body: bytes
) -> None:
    reply = await client.post(CHAT, content=body)
    assert (400, "invalid_request_error") == (reply.status_code, reply.json()["error"]["type"])
    assert [] == backend.chats


async def test_a_backend_that_only_reads_refuses_to_write(start: Start) -> None:
    async with start(FakeBackend()) as client:
        reply = await client.post(CHAT, json=HELLO)
    assert 400 == reply.status_code
    assert "only reads" in reply.json()["error"]["message"]
