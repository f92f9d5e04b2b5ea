"""`POST /decide/batch`: lines in order, a bounded window, errors item by item, and a client that leaves."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from structured_server.api.app import create_app
from structured_server.api.batch import Pace, decide_batch
from structured_server.api.service import Service, assemble
from structured_server.backends import Backend, NotReady, Step
from structured_server.core.reads import Read, ReadRequest
from structured_server.errors import UpstreamFailed
from structured_server.settings import Settings
from structured_server.wire.batch import (
    MAX_ITEMS,
    BatchDecided,
    BatchEnd,
    BatchFailed,
    BatchHeader,
    BatchWaiting,
)
from structured_server.wire.decide_response import ErrorResponse
from tests.api.conftest import WORDS, Start
from tests.golden.record import Recorder
from tests.golden.requests import TRIAGE, URGENT
from tests.serving import serving_http
from tests.toy import ToyTokenizer

PATH = "/decide/batch"
LINES = {"Content-Type": "application/x-ndjson"}
HEAD: dict[str, Any] = {"questions": {"urgent": URGENT}, "read": {"samples": 1}}
LINE: TypeAdapter[Any] = TypeAdapter(BatchHeader | BatchDecided | BatchFailed | BatchWaiting | BatchEnd)


def items(count: int) -> list[dict[str, Any]]:
    return [{"id": f"alert-{index}", "state": f"alert {index}"} for index in range(count)]


def batch(count: int, **more: Any) -> dict[str, Any]:
    return {**HEAD, "items": items(count), **more}


def as_lines(head: Any, items: Sequence[Any], end: bytes = b"\n") -> bytes:
    return end.join(map(orjson.dumps, (head, *items)))


def lines_of(reply: httpx.Response) -> list[dict[str, Any]]:
    """Return the lines, each checked against its documented shape."""
    assert 200 == reply.status_code, reply.text
    assert "application/x-ndjson" == reply.headers["content-type"].partition(";")[0]
    for line in reply.content.splitlines():
        LINE.validate_json(line)
    return [orjson.loads(line) for line in reply.content.splitlines()]


def of_items(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "index" in line]


def codes(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [line["error"]["code"] if "error" in line else "ok" for line in of_items(lines)]


class Counting(Recorder):
    """A backend that takes its time over each read, and knows how many were in flight at most."""

    def __init__(self, seconds: Sequence[float] = (0.001,)) -> None:
        super().__init__()
        self._seconds = itertools.cycle(seconds)
        self.begun = self.in_flight = self.most_in_flight = self.cancelled = 0

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        self.begun += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(next(self._seconds))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
        return await super().read(batch)


@asynccontextmanager
async def ready(backend: Backend, **settings: Any) -> AsyncIterator[tuple[Service, Any]]:
    """Give a ready service and its application."""
    known = Settings(upstream="http://engine", model="dgemma", log_level="error", **settings)
    service = assemble(known, ToyTokenizer(WORDS), backend)
    app = create_app(service)
    async with app.router.lifespan_context(app):
        while not service.readiness.now.ready:
            await asyncio.sleep(0.001)
        yield service, app


@asynccontextmanager
async def paced(backend: Backend, pace: Pace, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve batches at another pace than the server's."""
    async with ready(backend, **settings) as (service, app):

        async def route(request: Request) -> Response:
            return await decide_batch(request, service, pace)

        app.add_route("/paced", route, methods=["POST"])
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


# Answers


@pytest.mark.parametrize("path", [PATH, "/v1/decide/batch"])
async def test_a_batch_is_a_header_a_line_an_item_and_an_end(client: httpx.AsyncClient, path: str) -> None:
    sent = [*items(2), {"state": {"alert": "502"}}]
    header, *between, end = lines_of(await client.post(path, json={**HEAD, "items": sent}))
    assert {"model", "fingerprint", "question_set", "items"} == header.keys()
    assert ("dgemma", 3) == (header["model"], header["items"])
    assert [0, 1, 2] == [line["index"] for line in between]
    assert ["alert-0", "alert-1"] == [line["id"] for line in between[:2]]
    assert "id" not in between[2]
    for line in between:
        provenance = line["decision"]["provenance"]
        assert header["fingerprint"] == provenance["fingerprint"]
        assert header["question_set"] == provenance["question_set"]
    assert {"done": True, "ok": 3, "failed": 0} == end


async def test_an_item_is_answered_as_decide_answers_it(client: httpx.AsyncClient) -> None:
    head = {"questions": TRIAGE, "read": {"isolate": "all", "seed": 3}, "model": "dgemma"}
    states: list[Any] = ["502 spike", {"alert": "502 spike", "since": [14, 2]}, [1, None], ""]
    reply = await client.post(PATH, json={**head, "items": [{"state": state} for state in states]})
    for state, line in zip(states, of_items(lines_of(reply)), strict=True):
        single = (await client.post("/decide", json={**head, "state": state})).json()
        for moving in ("id", "timings_ms"):
            del single[moving], line["decision"][moving]
        assert single == line["decision"]


async def test_the_header_has_the_fingerprint_of_an_applied_policy(start: Start, tmp_path: Path) -> None:
    body = batch(2)
    async with start() as client:
        plain = lines_of(await client.post(PATH, json=body))[0]["fingerprint"]
    file = tmp_path / "policy.json"
    temperatures = {"noul": 1.3}
    file.write_bytes(orjson.dumps({"policy": "p1", "fingerprint": plain, "temperatures": temperatures}))
    async with start(policy=str(file)) as client:
        header, *between, _ = lines_of(await client.post(PATH, json=body))
    assert plain != header["fingerprint"]
    assert {header["fingerprint"]} == {line["decision"]["provenance"]["fingerprint"] for line in between}


async def test_lines_and_one_object_say_the_same(client: httpx.AsyncClient) -> None:
    whole = lines_of(await client.post(PATH, json=batch(3)))
    first, *others = map(orjson.dumps, (HEAD, *items(3)))
    bodies = {
        "plain": as_lines(HEAD, items(3)),
        "with a line end at the end": as_lines(HEAD, items(3)) + b"\n",
        "with carriage returns": as_lines(HEAD, items(3), b"\r\n"),
        "with blank lines": b"\n \n" + first + b"\n\n\r\n" + b"\n\n".join(others) + b"\n\n",
    }
    kinds = ("application/x-ndjson", "application/jsonl", "Application/X-NDJSON; charset=utf-8")
    for (name, body), kind in itertools.product(bodies.items(), kinds):
        found = lines_of(await client.post(PATH, content=body, headers={"Content-Type": kind}))
        for one, other in zip(whole, found, strict=True):
            for line in (one, other):
                for moving in ("id", "timings_ms"):
                    line.get("decision", {}).pop(moving, None)
            assert one == other, name


async def test_lines_come_in_order_however_long_each_takes(start: Start) -> None:
    random_ = random.Random(5)
    backend = Counting([random_.choice((0, 0.001, 0.004, 0.02)) for _ in range(97)])
    async with start(backend) as client:
        lines = of_items(lines_of(await client.post(PATH, json=batch(97))))
    assert list(range(97)) == [line["index"] for line in lines]
    assert [f"alert-{index}" for index in range(97)] == [line["id"] for line in lines]


async def test_a_thousand_items_are_answered_a_few_at_a_time(start: Start) -> None:
    backend = Counting([0])
    async with start(backend) as client:
        lines = lines_of(await client.post(PATH, json=batch(MAX_ITEMS)))
        metrics = (await client.get("/metrics")).text
    assert list(range(MAX_ITEMS)) == [line["index"] for line in of_items(lines)]
    assert {"done": True, "ok": MAX_ITEMS, "failed": 0} == lines[-1]
    assert Pace().in_flight == backend.most_in_flight
    assert 'structured_server_decisions_total{extended="false"} 1000.0' in metrics
    assert f'structured_server_requests_total{{route="{PATH}",status="200"}} 1.0' in metrics


async def test_what_nobody_takes_is_not_decided_ahead() -> None:
    backend = Counting([0])
    taken: list[bytes] = []
    stalled = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not stalled.is_set():
            stalled.set()
            return {"type": "http.request", "body": orjson.dumps(batch(100)), "more_body": False}
        return await asyncio.Future()  # nobody leaves

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            taken.append(message["body"])
        if len(taken) == 3:  # the header and two items
            await asyncio.Future()

    async with ready(backend) as (_, app):
        scope = {
            "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
            "headers": [], "scheme": "http", "http_version": "1.1", "asgi": {"version": "3.0"},
        }  # fmt: skip
        serving = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(0.2)
        assert 3 == len(taken)
        assert Pace().in_flight + 1 == backend.begun
        serving.cancel()
        await asyncio.wait((serving,))


async def test_waiting_shows_in_keep_alive_lines() -> None:
    async with paced(Counting([0.2]), Pace(keep_alive_s=0.02)) as client:
        lines = lines_of(await client.post("/paced", json=batch(2)))
    waiting = [line for line in lines if "waiting" in line]
    assert 2 < len(waiting) <= 20
    assert {"waiting": True} == waiting[0] == lines[1]
    assert ["ok", "ok"] == codes(lines)


async def test_equal_states_in_flight_share_their_reads(start: Start) -> None:
    backend = Counting([0.01])
    async with start(backend) as client:
        lines = lines_of(await client.post(PATH, json={**HEAD, "items": [{"state": "the same"}] * 8}))
    assert 1 == backend.begun
    assert [False, *[True] * 7] == [line["decision"]["reading"]["shared"] for line in of_items(lines)]


async def test_the_log_has_one_line_with_the_counts(client: httpx.AsyncClient, caplog: Any) -> None:
    sent = [*items(2), {"state": "x" * 3000}]
    with caplog.at_level(logging.INFO, "structured_server.api.request_log"):
        await client.post(PATH, json={**HEAD, "items": sent})
    (record,) = caplog.records
    assert (PATH, 200, 2, 1) == tuple(record.fields[name] for name in ("route", "status", "ok", "failed"))


# Errors of items


class Faulty(Recorder):
    """A backend with a will for each state that it knows."""

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        prompt = ToyTokenizer(WORDS).text(batch[0].prompt.ids)
        if "engine!" in prompt:
            raise UpstreamFailed("the engine failed on the read with 500.")
        if "bug!" in prompt:
            raise ZeroDivisionError("secret state")
        if "slow!" in prompt:
            await asyncio.sleep(10)
        return await super().read(batch)


async def test_a_bad_item_is_a_line_and_the_others_go_on(start: Start) -> None:
    states = ["good", "engine!", "x" * 3000, "good 2", "slow!", "bug!", "good 3"]
    sent = [{"id": state[:8], "state": state} for state in states]
    async with start(Faulty()) as client:
        reply = await client.post(PATH, json={**HEAD, "items": sent, "deadline_ms": 200})
        metrics = (await client.get("/metrics")).text
    lines = lines_of(reply)
    expected = ["ok", "engine_error", "state_too_long", "ok", "deadline_exceeded", "internal", "ok"]
    assert expected == codes(lines)
    assert [state[:8] for state in states] == [line["id"] for line in of_items(lines)]
    assert {"done": True, "ok": 3, "failed": 4} == lines[-1]
    too_long = of_items(lines)[2]["error"]
    assert ["state"] == too_long["path"]
    assert "3000 tokens" in too_long["message"]
    for line in of_items(lines):
        if "error" in line:
            assert reply.headers["x-request-id"] == line["error"]["request_id"]
    assert "secret" not in reply.text
    assert 'refused_total{reason="deadline_exceeded"} 1.0' in metrics
    assert 'permits_in_use{unit="reads"} 0.0' in metrics


async def test_each_item_has_a_deadline_of_its_own(start: Start) -> None:
    async with start(Counting([0.05])) as client:
        lines = lines_of(await client.post(PATH, json=batch(80, deadline_ms=400)))
    assert ["ok"] * 80 == codes(lines), "the batch takes longer than an item's deadline"


async def test_a_full_queue_is_asked_again() -> None:
    backend = Counting([0.005])
    async with paced(backend, Pace(pause_s=0.004), max_reads=1, max_waiting=0) as client:
        lines = lines_of(await client.post("/paced", json=batch(30)))
    assert ["ok"] * 30 == codes(lines)
    assert 1 == backend.most_in_flight
    timings = [line["decision"]["timings_ms"] for line in of_items(lines)]
    assert max(each["queue"] for each in timings) > 4
    assert all(each["queue"] + each["engine"] <= each["total"] for each in timings)


async def test_a_queue_that_stays_full_is_an_error_at_the_deadline() -> None:
    async with paced(Counting([0.3]), Pace(pause_s=0.01), max_reads=1, max_waiting=0) as client:
        begun = time.monotonic()
        lines = lines_of(await client.post("/paced", json=batch(4, deadline_ms=150)))
    assert {"overloaded", "deadline_exceeded"} == set(codes(lines))
    assert 0.14 < time.monotonic() - begun < 1
    for line in of_items(lines):
        assert "-" not in line["error"]["message"]


async def test_an_item_whose_turn_came_too_late_says_how_long_the_queue_was_full() -> None:
    async with paced(Counting([0.25]), Pace(pause_s=0.01), max_reads=1, max_waiting=0) as client:
        lines = lines_of(await client.post("/paced", json=batch(2, deadline_ms=400)))
    assert ["ok", "deadline_exceeded"] == codes(lines)
    said = re.search(
        r"the deadline of 400 ms; the queue was full for (\d+) of", of_items(lines)[1]["error"]["message"]
    )
    assert said is not None
    assert 240 <= int(said[1]) < 400, "250, and more on a busy machine"


class Leaving(Recorder):
    """A backend that is lost at its third read and does not come back."""

    def __init__(self) -> None:
        super().__init__()
        self._lost = asyncio.Event()
        self._reads = 0

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        self._reads += 1
        if self._reads == 3:
            self._lost.set()
            await asyncio.sleep(0.01)
        return await super().read(batch)

    async def prepare(self) -> AsyncIterator[Step]:
        yield Step("engine", "the engine to answer")
        if self._lost.is_set():
            raise NotReady("it does not answer.")

    async def watch(self) -> str:
        await self._lost.wait()
        return "it went away."


async def test_items_after_the_loss_of_the_engine_are_not_tried() -> None:
    async with paced(Leaving(), Pace(in_flight=1)) as client:
        lines = lines_of(await client.post("/paced", json=batch(6)))
    assert ["ok"] * 3 + ["loading"] * 3 == codes(lines)


# Errors of the whole


WIDE = {"type": "choice", "criteria": {"a": None}}
MISTAKES: list[tuple[str, Any, int, str, list[str | int]]] = [
    ("no JSON", b"{", 400, "invalid_json", []),
    ("lines without their type", as_lines(HEAD, items(2)), 400, "invalid_json", []),
    ("an array", [], 422, "invalid_request", []),
    ("no items", HEAD, 422, "invalid_request", ["items"]),
    ("empty items", {**HEAD, "items": []}, 422, "invalid_request", ["items"]),
    ("too many items", batch(MAX_ITEMS + 1), 422, "invalid_request", ["items"]),
    ("endless items", {**HEAD, "items": [1] * 50_000}, 422, "invalid_request", ["items"]),
    ("an item that is text", {**HEAD, "items": ["a"]}, 422, "invalid_request", ["items", 0]),
    (
        "an item without a state",
        {**HEAD, "items": [*items(3), {}]},
        422,
        "invalid_request",
        ["items", 3, "state"],
    ),
    ("a number as state", {**HEAD, "items": [{"state": 1}]}, 422, "invalid_request", ["items", 0, "state"]),
    (
        "an unknown field of an item",
        {**HEAD, "items": [*items(1), {"stat": "", "state": ""}]},
        422,
        "invalid_request",
        ["items", 1, "stat"],
    ),
    (
        "a long id",
        {**HEAD, "items": [{"id": "x" * 129, "state": ""}]},
        422,
        "invalid_request",
        ["items", 0, "id"],
    ),
    (
        "an id that is no text",
        {**HEAD, "items": [{"id": 1, "state": ""}]},
        422,
        "invalid_request",
        ["items", 0, "id"],
    ),
    ("metadata", batch(1, metadata={}), 422, "invalid_request", ["metadata"]),
    ("a state beside the items", batch(1, state=""), 422, "invalid_request", ["state"]),
    ("no time", batch(1, deadline_ms=0), 422, "invalid_request", ["deadline_ms"]),
    ("another model", batch(1, model="gpt"), 404, "unknown_model", ["model"]),
    (
        "a wrong question",
        batch(1, questions={"q": WIDE}),
        422,
        "invalid_question",
        ["questions", "q", "criteria"],
    ),
    (
        "an alias of many tokens",
        batch(1, questions={"q": {**URGENT, "aliases": {"true": "quite long"}}}),
        422,
        "invalid_question",
        ["questions", "q", "aliases", "true"],
    ),
    (
        "more draws than reads",
        batch(1, read={"samples": 4, "max_reads": 3}),
        422,
        "invalid_request",
        ["read", "max_reads"],
    ),
    ("thoughts that nobody writes", batch(1, read={"think": 10}), 422, "invalid_request", ["read", "think"]),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "path"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
async def test_a_mistake_in_the_whole_is_refused_before_the_first_line(
    client: httpx.AsyncClient, body: Any, status: int, code: str, path: list[str | int]
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await client.post(PATH, content=content)
    error = ErrorResponse.model_validate_json(reply.content).error
    assert (status, code, path) == (reply.status_code, error.code, error.path)


LINE_MISTAKES: list[tuple[str, bytes, int, list[str | int], str]] = [
    ("nothing", b"", 400, [], "no line"),
    ("blank lines", b"\n \r\n\n", 400, [], "no line"),
    ("a first line that is no JSON", b"\n{\n", 400, [], "line 2 "),
    ("an item that is no JSON", as_lines(HEAD, [{"state": ""}]) + b'\n\n{"state": }', 400, [], "line 4 "),
    (
        "a first line that is an array",
        as_lines([], items(1)),
        422,
        [],
        "line 1 of the body should be an object",
    ),
    ("a first line only", orjson.dumps(HEAD), 422, ["items"], "at least one"),
    ("items in the first line", as_lines(batch(1), items(1)), 422, ["items"], "first line"),
    (
        "a wrong question",
        as_lines({"questions": {"q": WIDE}}, items(1)),
        422,
        ["questions", "q", "criteria"],
        "2",
    ),
    (
        "an item that is an array",
        as_lines(HEAD, [*items(2), []]),
        422,
        ["items", 2],
        "items.2 should be an object",
    ),
    ("an item without a state", as_lines(HEAD, [*items(2), {}]), 422, ["items", 2, "state"], "is required"),
    ("too many items", as_lines(HEAD, items(MAX_ITEMS + 1)), 422, ["items"], "line 1002"),
    (
        "an endless number",
        as_lines(HEAD, items(1)) + b'\n{"state": [1e999]}',
        422,
        ["items", 1, "state"],
        "number",
    ),
]


@pytest.mark.parametrize(
    ("body", "status", "path", "said"), [m[1:] for m in LINE_MISTAKES], ids=[m[0] for m in LINE_MISTAKES]
)
async def test_a_mistake_in_lines_is_named_where_it_is(
    client: httpx.AsyncClient, body: bytes, status: int, path: list[str | int], said: str
) -> None:
    reply = await client.post(PATH, content=body, headers=LINES)
    error = ErrorResponse.model_validate_json(reply.content).error
    assert (status, path) == (reply.status_code, error.path)
    assert said in error.message
    assert "line 1 column" not in error.message


async def test_mistakes_come_with_what_would_be_right(client: httpx.AsyncClient) -> None:
    async def hint(**sent: Any) -> str:
        return str((await client.post(PATH, **sent)).json()["error"]["hint"])

    assert "application/x-ndjson" in await hint(content=as_lines(HEAD, items(1)))
    assert "Did you mean state?" == await hint(json={**HEAD, "items": [{"sate": "", "state": ""}]})
    lines = as_lines(HEAD, [{"sate": "", "state": ""}])
    assert "Did you mean state?" == await hint(content=lines, headers=LINES)


async def test_a_body_beyond_the_limit_is_refused(start: Start) -> None:
    async with start(max_body_bytes=1000) as client:
        reply = await client.post(PATH, json=batch(100))
    assert (413, "body_too_large") == (reply.status_code, reply.json()["error"]["code"])


async def test_a_batch_for_a_server_that_is_not_ready_is_a_503() -> None:
    known = Settings(upstream="http://engine", model="dgemma", log_level="error")
    app = create_app(assemble(known, ToyTokenizer(WORDS), Recorder()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        reply = await client.post(PATH, json=batch(1))  # nobody runs its lifespan
        metrics = (await client.get("/metrics")).text
    assert (503, "loading", "30") == (
        reply.status_code,
        reply.json()["error"]["code"],
        reply.headers["retry-after"],
    )
    assert 'refused_total{reason="loading"} 1.0' in metrics


async def _statuses(bodies: Sequence[bytes]) -> list[int]:
    async with ready(Recorder()) as (_, app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [
                (await client.post(PATH, content=body, headers=headers)).status_code
                for body in bodies
                for headers in ({}, LINES)
            ]


PIECES = (
    *map(orjson.dumps, (HEAD, batch(1), *items(2), {"state": {"a": [1.5, None]}}, [], {}, 1, "x")),
    b"\n", b"\n", b"\r\n", b" ", b"{", b"}", b",", b'"items":', b'{"state": NaN}', b'{"state": "\\ud800"}',
    b"\xff",
)  # fmt: skip


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=200), min_size=5, max_size=15))
def test_random_bytes_are_a_callers_mistake(bodies: list[bytes]) -> None:
    assert {400, 422} >= set(asyncio.run(_statuses(bodies)))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), min_size=5, max_size=15))
def test_pieces_of_batches_never_break_the_server(bodies: list[bytes]) -> None:
    assert {200, 400, 422} >= set(asyncio.run(_statuses(bodies)))


# A client that leaves


def _wait_until(count: int, backend: Counting, attribute: str) -> None:
    end = time.monotonic() + 5
    while getattr(backend, attribute) != count and time.monotonic() < end:
        time.sleep(0.01)
    assert count == getattr(backend, attribute)


def test_a_client_that_leaves_cancels_what_is_in_flight_and_all_that_would_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "structured_server.api.request_log")
    backend = Counting([*[0.0] * 3, *[60.0] * 97])
    body = orjson.dumps(batch(100, deadline_ms=60_000))
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    window = Pace().in_flight
    with serving_http(backend) as url:
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as client:
            client.sendall(head + body)
            received = b""
            while b'"alert-2"' not in received:
                received += client.recv(65_536)
            assert b"200 OK" in received
            _wait_until(3 + window, backend, "begun")
        _wait_until(window, backend, "cancelled")
        metrics = httpx.get(f"{url}/metrics").text
        assert 'structured_server_permits_in_use{unit="reads"} 0.0' in metrics
        assert f'structured_server_requests_total{{route="{PATH}",status="200"}} 1.0' in metrics
        assert 'status="500"' not in metrics
        time.sleep(0.1)
    assert (3 + window, 0) == (backend.begun, backend.in_flight)
    (fields,) = [fields for record in caplog.records if (fields := vars(record)["fields"])["route"] == PATH]
    assert (3, 0, True) == (fields["ok"], fields["failed"], fields["left"])


def test_lines_arrive_while_others_are_still_awaited() -> None:
    with (
        serving_http(Counting([0.0, 1.0])) as url,
        httpx.stream("POST", f"{url}{PATH}", json=batch(2)) as reply,
    ):
        begun = time.monotonic()
        lines = reply.iter_lines()
        assert "fingerprint" in json.loads(next(lines))
        assert 0 == json.loads(next(lines))["index"]
        assert time.monotonic() - begun < 0.8
        assert [1, None] == [json.loads(line).get("index") for line in lines]
        assert "no" == reply.headers["x-accel-buffering"]
