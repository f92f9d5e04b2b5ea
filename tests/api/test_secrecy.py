"""What callers send is in no log line, no metric and no error, and no address or path in it is followed.

Every request here carries a marker wherever text can stand, on every route, right and wrong in every way.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import socket
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from structured_server.api.paths import BATCH, CHAT, DECIDE, DECISIONS, LINT, MODELS, SYSTEMONE
from structured_server.backends import Backend, Step
from structured_server.backends.vllm import VllmBackend
from structured_server.backends.vllm.messages import parse_completion
from structured_server.core.reads import Prompt, ReadRequest
from structured_server.errors import (
    UpstreamFailed,
    UpstreamProtocolError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from structured_server.logs import JsonLines
from tests.api.conftest import WORDS, serving
from tests.fake_backend import FakeBackend
from tests.toy import ToyTokenizer
from tests.toy_engine import ToyEngineTokenizer

MARK = "marker5f1d0c7a"
NAME = "named93b6e2d4"
"""What ids, option names and field names hold: these may stand in an error, which says where it is."""

PIXEL = "data:image/png;base64,iVBORw0KGgo="
NOUL = {"type": "noul", "instructions": f"{MARK}?", "criteria": {"true": MARK, "false": f"no {MARK}"}}
CHOICE = {"type": "choice", "instructions": MARK, "criteria": {"compute": f"{MARK} hosts", "billing": None}}
SCORE = {"type": "score", "instructions": MARK, "criteria": [f"{MARK} low", f"{MARK} high", "none"]}
READ = {
    "samples": 2,
    "seed": 7,
    "layout": "schema_first",
    "isolate": "none",
    "entropy_threshold": {"noul": 0.1},
}
QUESTIONS = {f"{NAME}a": NOUL, f"{NAME}b": CHOICE, f"{NAME}c": SCORE}
ONE = {f"{NAME}b": CHOICE}
ASKED: dict[str, Any] = {"state": f"502 {MARK}", "questions": QUESTIONS, "read": READ}
PREDICATE = {"type": "predicate", "name": NAME, "instructions": f"It is {MARK}."}
CHOICES = {"type": "choice", "instructions": MARK, "choices": [{"value": f"{MARK}1"}, {"value": f"{MARK}2"}]}
LEVELS = {"type": "score", "instructions": MARK, "levels": [{"label": f"{MARK} a"}, {"label": f"{MARK} b"}]}
SAID = {"role": "user", "content": [{"type": "input_text", "text": MARK}]}
SYSTEM = {"questions": [{"id": NAME, "type": "noul", "instructions": MARK}], "samples": 1}

BODIES: dict[str, dict[str, Any]] = {
    "/decide": ASKED | {"images": [PIXEL]},
    "/decide/batch": {
        "questions": ONE, "read": {"samples": 1},
        "items": [{"id": NAME, "state": MARK}, {"state": {MARK: MARK}}],
    },
    "/decide/lint": {"questions": ONE, "state": MARK, "against": {"questions": {NAME: NOUL}}},
    "/v1/systemone": {
        "model": "jev-latest", "state": {"text": MARK, "more": [MARK]}, "questions": QUESTIONS, "samples": 1,
    },
    "/v1/decisions": {"model": "dgemma", "input": [SAID], "questions": [PREDICATE, CHOICES, LEVELS]},
    "/v1/chat/completions": {
        "model": "any",
        "messages": [{"role": "system", "content": json.dumps(SYSTEM)}, {"role": "user", "content": MARK}],
    },
}  # fmt: skip
WRITTEN = {"model": "dgemma", "messages": [{"role": "user", "content": MARK}], "temperature": 0.3}
ROUTES = {*DECIDE, *BATCH, *LINT, *SYSTEMONE, *DECISIONS, *CHAT, *MODELS}
ODD: list[Any] = [
    None, True, -1, 0, 2**70, 0.5, "", " ", MARK, f"{MARK}\n" * 60, [], {}, [MARK], {NAME: MARK}, [[MARK]],
    [{NAME: MARK}], {"url": MARK}, f"data:image/png;base64,{MARK}", f"file:///{MARK}",
]  # fmt: skip
HEADERS = {"Authorization": f"Bearer {MARK}", "Cookie": MARK, "X-Serverless-Authorization": f"Bearer {MARK}"}


def able(**more: Any) -> FakeBackend:
    """Return a backend that does everything."""
    return FakeBackend(max_steps=8, constrained=True, generation=True, images=True, chat=True, **more)


class Kept(logging.Handler):
    """Keeps every line as it would be written, and every message."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # The client of these tests writes lines of its own.
        if not record.name.startswith(("httpx", "httpcore")):
            self.lines += [self.format(record), record.getMessage()]


@pytest.fixture
def log() -> Iterator[Kept]:
    """All log lines from debug up, of everybody."""
    root, ours = logging.getLogger(), logging.getLogger("structured_server")
    before, kept = (root.level, ours.level), Kept()
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield kept
    root.removeHandler(kept)
    root.setLevel(before[0])
    ours.setLevel(before[1])


@asynccontextmanager
async def kept_secret(
    log: Kept, backend: Backend | None = None, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, set[int]]]:
    """Serve, and hold what is answered, logged and counted meanwhile against the marker."""
    statuses: set[int] = set()

    async def judge(response: httpx.Response) -> None:
        await response.aread()
        statuses.add(response.status_code)
        if response.status_code >= 400:
            said = f"{response.text} {response.headers}"
            assert MARK not in said, f"{response.request.url}: {said[:300]}"

    tokenizer = ToyTokenizer((*WORDS, *(f"A{letter}" for letter in "ABCDEF")), scaffold=True)
    async with serving(backend or able(), tokenizer, **settings) as client:
        client.headers.update(HEADERS)
        client.event_hooks["response"] = [judge]
        yield client, statuses
        metrics = (await client.get("/metrics")).text
    for secret in (MARK, NAME):
        assert secret not in metrics
        assert [] == [line for line in log.lines if secret in line]
    assert any('"message":"request"' in line for line in log.lines), "lines are seen at all"


def broken(body: Any, values: Sequence[Any] = (*ODD, ...)) -> Iterator[Any]:
    """Yield the body with each of its places once replaced by each value, or left out where that is `...`.

    Where it is null, a field that nobody knows stands beside it.
    """

    def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            yield (*path, key)
            yield from places(node[key], (*path, key))

    for path in places(body):
        for odd in values:
            changed = copy.deepcopy(body)
            node = changed
            for key in path[:-1]:
                node = node[key]
            if odd is ...:
                del node[path[-1]]
            else:
                node[path[-1]] = odd
            if isinstance(node, dict) and odd is None:
                node[NAME] = MARK
            yield changed


# Right and wrong requests


@pytest.mark.parametrize("path", BODIES)
async def test_no_request_shows_in_logs_metrics_or_errors(path: str, log: Kept) -> None:
    async with kept_secret(log) as (client, statuses):
        assert 200 == (await client.post(path, json=BODIES[path])).status_code
        for body in broken(BODIES[path]):
            await client.post(path, content=json.dumps(body).encode("utf-8", "surrogatepass"))
        for odd in ODD:
            await client.post(path, json=odd)
    assert {200, 400 if path.startswith("/v1/") and "systemone" not in path else 422} <= statuses
    assert max(statuses) < 500


async def test_no_request_for_text_shows(log: Kept) -> None:
    async with kept_secret(log) as (client, statuses):
        for body in broken(WRITTEN):
            await client.post("/v1/chat/completions", json=body)
        for name in ("echo", "guided_json", "response_format", "tool_choice"):
            odd: dict[str, Any] = {name: {"type": MARK, NAME: MARK}, "tools": [{"name": MARK}]}
            assert 400 == (await client.post("/v1/chat/completions", json=WRITTEN | odd)).status_code
    assert {200, 400} <= statuses


@pytest.mark.parametrize("path", BODIES)
async def test_no_body_that_cannot_be_read_shows(path: str, log: Kept) -> None:
    text = json.dumps(BODIES[path]).encode()
    cuts = [text[:at] for at in range(0, len(text), 17)]
    odd = [
        text + b"}",
        b"\xff" + text,
        text.replace(b'"', b"'"),
        text.replace(b":", b"="),
        MARK.encode(),
        b"",
    ]
    nan = text.replace(b"502", b"NaN").replace(f'"{MARK}'.encode(), f"{MARK}".encode())
    part = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n--b--\r\n'
    forms = [part % (name, MARK.encode()) for name in (b"request", NAME.encode())]
    types: list[dict[str, str]] = [
        {"Content-Type": kind} for kind in (MARK, f"multipart/{MARK}", "text/plain")
    ]
    types += [{"Content-Encoding": kind} for kind in ("gzip", "zstd", MARK)]
    async with kept_secret(log) as (client, statuses):
        for body in (*cuts, *odd, nan):
            await client.post(path, content=body)
        for headers in types:
            await client.post(path, content=text, headers=headers)
        for form in forms:
            for kind in ("multipart/form-data; boundary=b", f"multipart/form-data; boundary={MARK}"):
                await client.post(path, content=form, headers={"Content-Type": kind})
    assert statuses & {400, 422}
    assert max(statuses) < 500


async def test_no_path_query_method_or_key_shows(log: Kept) -> None:
    async with kept_secret(log, api_key=("another",)) as (client, statuses):
        for authorization in (f"Bearer {MARK}", f"Basic {MARK}", MARK, f"Bearer {MARK} {MARK}", ""):
            for path in sorted(ROUTES):
                headers = {"Authorization": authorization}
                assert 200 != (await client.post(path, json=BODIES["/decide"], headers=headers)).status_code
    assert {401, 403} <= statuses
    async with kept_secret(log) as (client, statuses):
        for path in ("/nowhere", f"/{MARK}", f"/v1/{MARK}", f"/decide/{MARK}", f"/decide?{MARK}={MARK}"):
            for method in ("GET", "PUT", "POST", MARK.upper()):
                await client.request(method, path, json=ASKED)
    assert {404, 405} <= statuses


async def test_a_body_beyond_the_limit_is_refused_before_it_is_parsed(log: Kept) -> None:
    """It is not even JSON, which nobody finds out; and of 100 MB no more is taken than the limit."""
    limit, piece, taken = 2**20, b"[" * 2**16, 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(100 * 2**20 // len(piece)):
            taken += len(piece)
            yield piece

    async with kept_secret(log, max_body_bytes=limit) as (client, _):
        for path in BODIES:
            taken = 0
            tracemalloc.start()
            begun = time.monotonic()
            try:
                reply = await client.post(path, content=endless())
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert 413 == reply.status_code
            assert limit < taken <= limit + len(piece)
            assert most < 4 * limit
            assert time.monotonic() - begun < 1


# What goes wrong on the way

FAILURES = [
    *(
        kind(f"it failed with {reason}.")
        for kind in (UpstreamFailed, UpstreamRejected)
        for reason in ("500",)
    ),
    UpstreamTimeout("no reply."),
    UpstreamUnreachable("no connection."),
    UpstreamProtocolError("3 rows came back for 4 slots."),
    ValueError(MARK),  # a bug, whose message may hold anything
    RuntimeError(MARK),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
async def test_no_failure_of_the_engine_shows_what_was_asked(failure: Exception, log: Kept) -> None:
    backend = able()
    backend.failures = dict.fromkeys(range(10_000), failure)
    backend.generation_failure = failure
    async with kept_secret(log, backend) as (client, statuses):
        for path, body in BODIES.items():
            reply = await client.post(path, json=body)
            if path == "/decide/batch":
                assert MARK not in reply.text
                assert '"failed":2' in reply.text
        await client.post("/v1/chat/completions", json=WRITTEN)
    assert statuses & {500, 502}


async def test_no_refusal_for_now_shows_what_was_asked(log: Kept) -> None:
    slow = able(delay_s=5.0)
    async with kept_secret(log, slow, max_reads=1, max_waiting=0, deadline_ms=300) as (client, statuses):
        await asyncio.gather(*(client.post(path, json=body) for path, body in BODIES.items()))
        await client.post("/decide", json=ASKED)
    assert {503, 504, 529} <= statuses


async def test_not_being_ready_shows_nothing(log: Kept) -> None:
    backend = able()
    async with kept_secret(log, backend) as (client, statuses):
        backend.problems = {"engine": ValueError(MARK)}
        backend.lose("nothing answers")
        while (await client.get("/ready")).status_code == 200:
            await asyncio.sleep(0.001)
        for path, body in BODIES.items():
            await client.post(path, json=body)
    assert 503 in statuses


@asynccontextmanager
async def echoing(status: int) -> AsyncIterator[str]:
    """Serve an engine that answers the checks and, to everything else, with what it was sent."""

    async def echo(request: web.Request) -> web.Response:
        whole = await request.text()
        sent = whole[max(0, whole.find(MARK)) :]  # so that a message that is cut short still has it
        if status == 200:
            rows = [
                {"tokens": [sent], "top_logprobs": [{sent: sent}], "content": [{"token": sent, sent: sent}]}
            ]
            return web.json_response({"choices": [{"logprobs": rows[0]}], "usage": {"prompt_tokens": sent}})
        return web.json_response({"error": {"message": sent, "code": status}}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await runner.cleanup()


class Ready(VllmBackend):
    """Reads over HTTP without checking the engine first."""

    async def prepare(self) -> AsyncIterator[Step]:
        no_steps: tuple[Step, ...] = ()
        for step in no_steps:
            yield step

    async def watch(self) -> str:
        return str(await asyncio.get_running_loop().create_future())


@pytest.mark.parametrize("status", [200, 400, 404, 500, 503])
async def test_an_engine_that_repeats_what_it_was_sent_is_not_repeated(status: int, log: Kept) -> None:
    async with echoing(status) as url:
        backend = Ready(url, model="dgemma", tokenizer=ToyEngineTokenizer(), canvas=64, transport="chat")
        settings = {"prompt_transport": "chat", "scaffold": "canvas"}
        async with kept_secret(log, backend, **settings) as (client, statuses):
            for path, body in BODIES.items():
                text_only = {name: value for name, value in body.items() if name != "images"}
                await client.post(path, json=text_only)
        await backend.close()
    assert 502 in statuses


def test_a_reply_that_is_no_read_is_told_by_our_names_only() -> None:
    """What an engine names its tokens may be text of a prompt."""
    request = ReadRequest(Prompt((1,)), (3,) * 16, (0,), (5,))
    logprobs = {"tokens": ["x"], "top_logprobs": [{MARK: "none"}]}
    reply = {"choices": [{"logprobs": logprobs}], "usage": {"prompt_tokens": 1}}
    with pytest.raises(UpstreamProtocolError, match="Expected `float`, got `str`") as caught:
        parse_completion(request, json.dumps(reply).encode())
    assert MARK not in caught.value.message


# Addresses and paths


@pytest.fixture
def trap() -> Iterator[tuple[str, list[object]]]:
    """A port of this machine, and who connected to it."""
    came: list[object] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, address = listening.accept()
            except OSError:
                return
            came.append(address)
            connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/{MARK}", came
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_the_trap_notices_who_comes(trap: tuple[str, list[object]]) -> None:
    url, came = trap
    with pytest.raises(httpx.HTTPError):
        httpx.get(url)
    assert 1 == len(came)


@pytest.mark.parametrize("path", BODIES)
async def test_no_address_or_path_in_a_request_is_ever_followed(
    path: str, trap: tuple[str, list[object]], tmp_path: Path
) -> None:
    """Whatever field holds it: nothing connects there, and nothing of the file goes to the engine or back."""
    url, came = trap
    secret = "what only the file holds"  # noqa: S105  it is what must not be found
    file = tmp_path / "state.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + secret.encode())
    values = [url, f"file://{file}", str(file), f"@{file}", {"url": url}, {"$ref": url}, [url], [str(file)]]
    values += [{"type": "image_url", "image_url": {"url": url}}, {"type": "image", "url": str(file)}]
    backend = able()
    headers = {"Referer": url, "X-Forwarded-Host": url, "Upstream": url, "X-Upstream-Url": url, "Host": "h"}
    extra = {"upstream": url, "base_url": url, "tokenizer": str(file), "policy": str(file), "api_base": url}
    async with serving(backend, ToyTokenizer(WORDS, scaffold=True)) as client:
        client.headers.update(headers)
        before = None
        for more in ({}, extra):
            reply = await client.post(path, json=BODIES[path] | more)
            read = [request for batch in backend.batches for request in batch]
            backend.batches.clear()
            if reply.status_code == 200:
                assert before in (None, read), "a field that nobody knows changes nothing"
                before = read
        answered = 0
        for body in broken(BODIES[path], values):
            reply = await client.post(path, json=body)
            answered += reply.status_code == 200
            assert secret not in reply.text
    assert answered
    for request in (request for batch in backend.batches for request in batch):
        assert all(secret.encode() not in image.data for image in request.prompt.images)
        assert all(secret not in segment.text for segment in request.prompt.segments)
    assert [] == came


@pytest.mark.parametrize("part", ["image_url", "video_url", "audio_url", "any_url"])
@pytest.mark.parametrize("shape", ["object", "text", "without a type"])
async def test_no_engine_is_told_an_address_to_fetch(
    part: str, shape: str, trap: tuple[str, list[object]], tmp_path: Path
) -> None:
    url, came = trap
    backend = able()
    async with serving(backend, ToyTokenizer(WORDS, scaffold=True)) as client:
        for given in (
            url,
            f"file://{tmp_path}/a.png",
            f"{tmp_path}/a.png",
            "HTTPS://example.org",
            "",
            " data:x",
        ):
            value: Any = given if shape == "text" else {"url": given}
            content: list[Any] = [{"type": "text", "text": "x"}, {"type": part, part: value}]
            if shape == "without a type":
                del content[1]["type"]
            body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": content}]}
            reply = await client.post("/v1/chat/completions", json=body)
            assert 400 == reply.status_code
            assert f"messages.1.content.1.{part}" == reply.json()["error"]["param"]
            assert given.strip() == "" or given not in reply.text
        for right in (PIXEL, PIXEL.replace("data:", "DATA:")):
            content = [{"type": part, part: {"url": right}}]
            body = {"messages": [{"role": "user", "content": content}]}
            assert 200 == (await client.post("/v1/chat/completions", json=body)).status_code
        for name in ("kv_transfer_params", "ec_transfer_params"):
            await client.post("/v1/chat/completions", json=WRITTEN | {name: {"remote_host": url}})
    assert all(url.encode() not in chat for chat in backend.chats)
    assert [] == came
