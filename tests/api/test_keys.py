"""API keys over HTTP: who gets in, how often and under which name; files that change under a server."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from starlette.types import Message

from structured_server.admission import Admission, Lane, Weight
from structured_server.api.app import create_app
from structured_server.api.paths import BATCH, CHAT, DECIDE, DECISIONS, LINT, MODELS, SYSTEMONE
from structured_server.api.service import assemble
from structured_server.backends.vllm.messages import chat_body, completion_body, generation_body
from structured_server.core.reads import Prompt, ReadRequest
from structured_server.core.tokens import Kind, Segment
from structured_server.driver import Driver
from structured_server.errors import SettingsError
from structured_server.settings import Settings
from tests.api.asking import CHAT as CHAT_PATH
from tests.api.asking import decisions, system_one
from tests.api.conftest import WORDS, Start
from tests.fake_backend import FakeBackend
from tests.golden.requests import TRIAGE
from tests.toy import ToyTokenizer

ASKED: dict[str, Any] = {"state": "502 spike", "questions": TRIAGE, "read": {"samples": 1}}
POSTS = (*DECIDE, *BATCH, *LINT, *SYSTEMONE, *DECISIONS, *CHAT)
OPEN = ("/live", "/health", "/ready", "/metrics", "/docs", "/openapi.json")
WRITING = {"messages": [{"role": "user", "content": "Hello?"}]}


def entry(name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": sha256(key.encode()).hexdigest(), **more}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class KeysFile:
    """A keys file that is replaced as it should be."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.yaml"

    def write(self, *entries: dict[str, Any]) -> str:
        """Replace it, and return its path."""
        self.write_text(yaml.safe_dump({"keys": list(entries)}))
        return str(self.path)

    def write_text(self, text: str) -> None:
        """Replace it."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)


@pytest.fixture
def keys(tmp_path: Path) -> KeysFile:
    """A keys file to be."""
    return KeysFile(tmp_path)


async def decide(client: httpx.AsyncClient, key: str, **fields: Any) -> httpx.Response:
    return await client.post("/decide", json=ASKED | fields, headers=bearer(key))


async def until(client: httpx.AsyncClient, key: str, status: int) -> None:
    """Ask until the key is answered so: a change of the file takes about a second."""
    async with asyncio.timeout(10):
        while (await decide(client, key)).status_code != status:
            await asyncio.sleep(0.05)


async def gauge(client: httpx.AsyncClient, file: str) -> float:
    metrics = (await client.get("/metrics")).text
    (line,) = [line for line in metrics.splitlines() if f'file_error{{file="{file}"}}' in line]
    return float(line.split()[-1])


# Who gets in


async def test_every_key_of_the_file_opens_and_no_other(start: Start, keys: KeysFile) -> None:
    path = keys.write(entry("triage", "one"), entry("triage", "two"), entry("batch", "three"))
    async with start(api_keys_file=path, api_key=("plain",)) as client:
        for right in ("one", "two", "three", "plain"):
            assert 200 == (await decide(client, right)).status_code
        for wrong in ("four", "on", "onee", "One", sha256(b"one").hexdigest()):
            assert 403 == (await decide(client, wrong)).status_code
        assert 401 == (await client.post("/decide", json=ASKED)).status_code


async def test_a_file_without_keys_lets_nobody_in(start: Start, keys: KeysFile) -> None:
    async with start(api_keys_file=keys.write()) as client:
        assert 401 == (await client.post("/decide", json=ASKED)).status_code
        assert 403 == (await decide(client, "one")).status_code


async def test_every_route_but_probes_asks_for_a_key(start: Start, keys: KeysFile) -> None:
    async with start(api_keys_file=keys.write(entry("a", "one"))) as client:
        for path in POSTS:
            assert (await client.post(path, json={})).status_code in (401, 403), path
        for path in (*MODELS, "/nowhere", "/v1/nowhere", "/live/", "//live", "/metrics/x"):
            assert (await client.get(path)).status_code in (401, 403), path
        for path in OPEN:
            assert 200 == (await client.get(path)).status_code, path


async def test_a_key_that_has_expired_is_refused(start: Start, keys: KeysFile) -> None:
    path = keys.write(entry("old", "one", expires="2020-01-01"), entry("new", "two", expires="2999-01-01"))
    async with start(api_keys_file=path) as client:
        refused = await decide(client, "one")
        assert (403, "wrong_key") == (refused.status_code, refused.json()["error"]["code"])
        assert 200 == (await decide(client, "two")).status_code


def test_a_wrong_file_ends_the_start(keys: KeysFile) -> None:
    keys.write_text("keys: {}")
    settings = Settings(upstream="http://engine", model="dgemma", api_keys_file=str(keys.path))
    with pytest.raises(SettingsError, match=r"the keys file .*: keys: "):
        assemble(settings, ToyTokenizer(), FakeBackend())


# Under which name


async def test_the_keys_name_stands_in_the_log_line_and_the_key_does_not(
    start: Start, keys: KeysFile, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "structured_server"):
        async with start(api_keys_file=keys.write(entry("triage", "the-key"))) as client:
            await decide(client, "the-key")
            await decide(client, "wrong-key")
    named = [record.__dict__["fields"] for record in caplog.records if record.message == "request"]
    assert [("triage", 200), (None, 403)] == [(fields.get("key"), fields["status"]) for fields in named]
    assert "-key" not in str(named)


async def test_requests_are_counted_by_the_names_in_the_file_only(start: Start, keys: KeysFile) -> None:
    path = keys.write(entry("triage", "one"), entry("triage", "two"))
    async with start(api_keys_file=path, api_key=("plain", "other")) as client:
        for key in ("one", "two", "plain", "other", "wrong"):
            await decide(client, key)
        metrics = (await client.get("/metrics")).text
    counted = [
        line for line in metrics.splitlines() if line.startswith("structured_server_key_requests_total")
    ]
    name = "structured_server_key_requests_total"
    assert [f'{name}{{key="api-key"}} 2.0', f'{name}{{key="triage"}} 2.0'] == sorted(counted)


class Listening(Driver):
    """Remembers in whose lane it was asked."""

    lanes: Sequence[Lane] = ()

    async def decide(self, query: Any, lane: Lane = Lane("unsaid")) -> Any:  # noqa: B008  it is frozen
        self.lanes = (*self.lanes, lane)
        return await super().decide(query, lane)

    def chat(self, body: bytes, lane: Lane = Lane("unsaid")) -> Any:  # noqa: B008  it is frozen
        self.lanes = (*self.lanes, lane)
        return super().chat(body, lane)


async def test_each_key_has_a_lane_of_its_own_and_batches_wait_behind(keys: KeysFile) -> None:
    path = keys.write(entry("triage", "one"))
    settings = Settings(upstream="http://engine", model="dgemma", api_keys_file=path)
    backend, tokenizer = FakeBackend(chat=True), ToyTokenizer(WORDS)
    service = assemble(settings, tokenizer, backend)
    admission = Admission(Weight(1024, 16), max_waiting=64)
    listening = Listening(backend, tokenizer, admission, service.metrics)
    app = create_app(replace(service, driver=listening))
    batch = {"questions": TRIAGE, "items": [{"state": "a"}]}
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.001)
        for path, body in (
            ("/decide", ASKED),
            ("/v1/systemone", system_one()),
            ("/v1/decisions", decisions()),
            (CHAT_PATH, WRITING),
            ("/decide/batch", batch),
        ):
            reply = await client.post(path, json=body, headers=bearer("one"))
            assert 200 == reply.status_code, reply.text
    assert [*[Lane("triage")] * 4, Lane("triage", batch=True)] == list(listening.lanes)


# How often


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/decide", {"code": "rate_limited", "retryable": True}),
        ("/decide/batch", {"code": "rate_limited"}),
        ("/v1/systemone", {"error_type": "rate_limit_error"}),
        ("/v1/decisions", {"type": "rate_limit_error", "code": "rate_limit_exceeded"}),
        ("/v1/chat/completions", {"type": "rate_limit_error", "code": "rate_limit_exceeded"}),
    ],
)
async def test_beyond_its_limit_a_key_is_told_when_to_come_back(
    path: str, said: dict[str, Any], start: Start, keys: KeysFile
) -> None:
    limited = entry("slow", "one", requests_per_minute=2)
    async with start(api_keys_file=keys.write(limited, entry("fast", "two"))) as client:
        for _ in range(2):
            assert 429 != (await client.post(path, json={}, headers=bearer("one"))).status_code
        refused = await client.post(path, json={}, headers=bearer("one"))
        assert 429 == refused.status_code
        assert 25 < int(refused.headers["retry-after"]) <= 30
        body = refused.json()
        assert said.items() <= (body.get("error") or body["detail"]).items()
        assert 429 != (await client.post(path, json={}, headers=bearer("two"))).status_code
        metrics = (await client.get("/metrics")).text
    assert 'structured_server_refused_total{reason="rate_limited"} 1.0' in metrics


async def test_the_limit_is_checked_before_anything_of_the_body_is_read(keys: KeysFile) -> None:
    path = keys.write(entry("slow", "one", requests_per_minute=1))
    settings = Settings(upstream="http://engine", model="dgemma", api_keys_file=path)
    app = create_app(assemble(settings, ToyTokenizer(), FakeBackend()))
    asked_for = 0
    sent: list[Message] = []

    async def receive() -> Message:
        nonlocal asked_for
        asked_for += 1
        return {"type": "http.request", "body": b"{", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    for key, status, reads in (("one", 400, 1), ("one", 429, 0), ("wrong", 403, 0)):
        asked_for = 0
        sent.clear()
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/decide",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {key}".encode())],
        }
        await app(scope, receive, send)
        assert (status, reads) == (sent[0]["status"], asked_for)


# Files that change


async def test_a_rotation_needs_no_restart(start: Start, keys: KeysFile) -> None:
    old, new = entry("triage", "old"), entry("triage", "new")
    async with start(api_keys_file=keys.write(old)) as client:
        assert (200, 403) == tuple([(await decide(client, key)).status_code for key in ("old", "new")])
        keys.write(old, new)
        begun = time.monotonic()
        await until(client, "new", 200)
        assert time.monotonic() - begun < 5
        assert 200 == (await decide(client, "old")).status_code
        keys.write(new)
        await until(client, "old", 403)
        assert 200 == (await decide(client, "new")).status_code


async def test_a_wrong_file_keeps_the_keys_before_it_and_shows_in_the_gauge(
    start: Start, keys: KeysFile, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(api_keys_file=keys.write(entry("triage", "one"))) as client:
        assert 0 == await gauge(client, "keys")
        keys.write_text("keys:\n  - name: triage\n    sha256: ssk_put-here-by-mistake\n")
        async with asyncio.timeout(10):
            while await gauge(client, "keys") == 0:
                await asyncio.sleep(0.05)
        assert 200 == (await decide(client, "one")).status_code
        assert 403 == (await decide(client, "ssk_put-here-by-mistake")).status_code
        (told,) = [record for record in caplog.records if record.name.endswith("watched_file")]
        assert str(keys.path) in told.getMessage()
        assert "keys.0.sha256" in told.getMessage()
        assert "ssk_" not in told.getMessage()
        keys.write(entry("triage", "two"))
        await until(client, "two", 200)
        assert 0 == await gauge(client, "keys")


async def test_a_new_policy_is_applied_without_restart_and_a_wrong_one_is_not(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"
    new = tmp_path / "policy.new"

    def write(text: str) -> None:
        new.write_text(text)
        new.rename(file)

    async def policy() -> Any:
        reply = (await client.post("/decide", json=ASKED)).json()
        return reply["calibration"]

    async with start() as client:
        fingerprint = (await client.post("/decide", json=ASKED)).json()["provenance"]["fingerprint"]
    write(json.dumps({"policy": "first", "fingerprint": fingerprint}))
    async with start(policy=str(file)) as client:
        assert "first" == (await policy())["policy"]
        write(json.dumps({"policy": "second", "fingerprint": fingerprint, "temperatures": {"noul": 2.0}}))
        async with asyncio.timeout(10):
            while (await policy())["policy"] != "second":
                await asyncio.sleep(0.05)
        write("{}")
        async with asyncio.timeout(10):
            while await gauge(client, "policy") == 0:
                await asyncio.sleep(0.05)
        assert "second" == (await policy())["policy"]


async def test_files_that_no_setting_names_have_no_gauge(client: httpx.AsyncClient) -> None:
    assert "file_error{" not in (await client.get("/metrics")).text


# Prefix caches that are not shared


@pytest.fixture
async def salted(
    start: Start, keys: KeysFile
) -> AsyncIterator[tuple[httpx.AsyncClient, FakeBackend, dict[str, str]]]:
    """A server with two salted keys and one without a salt, its backend, and the salt of each key."""
    backend = FakeBackend(generation=True, chat=True)
    path = keys.write(
        entry("a", "one", cache_salt=True), entry("b", "two", cache_salt=True), entry("c", "three")
    )
    async with start(backend, ToyTokenizer(WORDS, scaffold=True), api_keys_file=path) as client:
        salts = {}
        for key in ("one", "two", "three"):
            assert 200 == (await decide(client, key)).status_code
            (salts[key],) = {request.prompt.cache_salt for request in backend.batches[-1]}
        yield client, backend, salts


async def test_each_salted_key_has_a_salt_that_tells_nothing_of_it(
    salted: tuple[httpx.AsyncClient, FakeBackend, dict[str, str]],
) -> None:
    _, _, salts = salted
    assert "" == salts["three"]
    assert salts["one"] != salts["two"]
    for key in ("one", "two"):
        assert 64 == len(salts[key])
        assert sha256(key.encode()).hexdigest() != salts[key]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/decide", ASKED | {"read": {"think": 4, "samples": 1}}),
        ("/decide/batch", {"questions": TRIAGE, "items": [{"state": "a"}]}),
        ("/v1/systemone", system_one()),
        ("/v1/decisions", decisions()),
        (CHAT_PATH, {"messages": [{"role": "system", "content": json.dumps({"questions": [
            {"id": "q", "type": "noul", "instructions": "Is it?"}]})}, {"role": "user", "content": "x"}]}),
    ],
)  # fmt: skip
async def test_a_salt_is_on_everything_that_the_engine_reads(
    path: str, body: dict[str, Any], salted: tuple[httpx.AsyncClient, FakeBackend, dict[str, str]]
) -> None:
    client, backend, salts = salted
    before = len(backend.batches)
    reply = await client.post(path, json=body, headers=bearer("one"))
    assert 200 == reply.status_code, reply.text
    read = [request.prompt for batch in backend.batches[before:] for request in batch]
    written = [prompt for prompt, *_ in backend.generated]
    assert read
    assert {salts["one"]} == {prompt.cache_salt for prompt in [*read, *written]}


async def test_a_salt_goes_with_what_the_engine_writes_and_before_a_callers_own(
    salted: tuple[httpx.AsyncClient, FakeBackend, dict[str, str]],
) -> None:
    client, backend, salts = salted
    for key in ("one", "three"):
        await client.post(CHAT_PATH, json=WRITING, headers=bearer(key))
    await client.post(CHAT_PATH, json=WRITING | {"cache_salt": salts["two"]}, headers=bearer("one"))
    assert [salts["one"], None, salts["one"]] == [
        json.loads(chat).get("cache_salt") for chat in backend.chats
    ]


async def test_equal_requests_of_salted_keys_do_not_share_their_reads(start: Start, keys: KeysFile) -> None:
    """Whether an answer was shared, and how soon it came, would tell that somebody else asked the same."""
    path = keys.write(
        entry("a", "one", cache_salt=True),
        entry("b", "two", cache_salt=True),
        entry("c", "3"),
        entry("d", "4"),
    )
    async with start(FakeBackend(delay_s=0.05), api_keys_file=path) as client:
        replies = await asyncio.gather(*(decide(client, key) for key in ("one", "two", "3", "4")))
        metrics = (await client.get("/metrics")).text
    answers = [reply.json()["answers"] for reply in replies]
    assert [answers[0]] * 4 == answers, "a salt moves no number"
    assert "structured_server_shared_decisions_total 1.0" in metrics


def test_only_a_prompt_with_a_salt_has_one_in_the_engines_bodies() -> None:
    kinds = (Kind.CONTROL, Kind.TEXT, Kind.CONTROL, Kind.STATE, Kind.CONTROL)
    segments = tuple(Segment(kind, "x") for kind in kinds)

    def bodies(salt: str) -> list[dict[str, Any]]:
        prompt = Prompt((1, 2), segments, cache_salt=salt)
        request = ReadRequest(prompt, (3,) * 16, (4,), (5, 6))
        made = (
            completion_body("m", request),
            chat_body("m", request, str),
            generation_body("m", prompt, 8, 1),
        )
        return [json.loads(body) for body in made]

    for plain, with_salt in zip(bodies(""), bodies("5a17"), strict=True):
        assert "cache_salt" not in plain
        assert plain | {"cache_salt": "5a17"} == with_salt


# Browsers


async def test_no_response_ever_lets_another_sites_page_read_it(start: Start) -> None:
    """Without these headers a browser keeps answers from pages of other origins."""
    origin = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    asked = {"Access-Control-Request-Headers": "authorization,content-type"}
    async with start() as client:
        for path in (*POSTS, *MODELS, *OPEN, "/nowhere", "/v1/nowhere"):
            for method, more in (("OPTIONS", asked), ("GET", {}), ("POST", {})):
                reply = await client.request(method, path, headers=origin | more, content=json.dumps(ASKED))
                assert [] == [name for name in reply.headers if name.startswith("access-control-")], path
                if method == "OPTIONS":
                    assert reply.status_code in (404, 405), path
