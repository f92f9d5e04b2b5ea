"""`POST /decide` over HTTP: the shape of answers, and what each kind of mistake gets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import httpx
import orjson
import pytest

from structured_server.core.reads import Read, ReadRequest
from structured_server.errors import UpstreamFailed
from structured_server.wire.decide_response import DecideResponse, ErrorResponse, SkippedAnswer
from tests.api.conftest import Start
from tests.golden.record import Recorder
from tests.golden.requests import LONG_NAMES, REQUESTS, SEVERITY, TEAM, TRIAGE, URGENT

ASKED: dict[str, Any] = {"state": "502 spike", "questions": TRIAGE}


@pytest.mark.parametrize("name", REQUESTS)
async def test_every_answer_has_the_documented_shape(client: httpx.AsyncClient, name: str) -> None:
    reply = await client.post("/decide", json=REQUESTS[name])
    assert 200 == reply.status_code, reply.text
    answer = DecideResponse.model_validate_json(reply.content)
    assert list(REQUESTS[name]["questions"]) == list(answer.answers)
    for each in answer.answers.values():
        assert not isinstance(each, SkippedAnswer)
        assert pytest.approx(1, abs=1e-9) == sum(each.probabilities.values())


async def test_questions_are_answered_by_type(client: httpx.AsyncClient) -> None:
    answers = (await client.post("/v1/decide", json=ASKED)).json()["answers"]
    urgent, team, severity = answers["urgent"], answers["team"], answers["severity"]
    assert urgent["answer"] == (urgent["noul"] >= 0.5)
    assert urgent["noul"] == urgent["probabilities"]["true"]
    assert max(team["probabilities"], key=team["probabilities"].get) == team["choice"] == team["answer"]
    assert {"0": "none", "1": "minor", "2": "major", "3": "critical"} == severity["legend"]
    mean = sum(int(index) * p for index, p in severity["probabilities"].items())
    assert pytest.approx(mean) == severity["score"]
    assert severity["answer"] == severity["level"]


async def test_a_broken_limit_leaves_the_question_undecided(client: httpx.AsyncClient) -> None:
    questions = {"team": {**TEAM, "abstain": {"min_top_probability": 1.0}}, "urgent": URGENT}
    answer = (await client.post("/decide", json={"state": "", "questions": questions})).json()
    assert ["team"] == answer["undecided"]
    team = answer["answers"]["team"]
    assert ("abstained", None) == (team["status"], team["answer"])
    assert [{"code": "top_probability_below_min", "value": team["top_probability"], "limit": 1.0}] == team[
        "reasons"
    ]


async def test_metadata_is_echoed_and_moves_nothing(client: httpx.AsyncClient) -> None:
    plain = (await client.post("/decide", json=ASKED)).json()
    tagged = (await client.post("/decide", json={**ASKED, "metadata": {"incident": "INC-1"}})).json()
    assert {"incident": "INC-1"} == tagged["metadata"]
    assert (plain["answers"], plain["provenance"]) == (tagged["answers"], tagged["provenance"])


async def test_the_fingerprint_follows_what_moves_numbers(client: httpx.AsyncClient) -> None:
    async def provenance(body: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = (await client.post("/decide", json=body)).json()["provenance"]
        return found

    base = await provenance(ASKED)
    assert base == await provenance({**ASKED, "state": "something else"})
    for read in ({"layout": "document_first"}, {"template": "lines"}, {"samples": 4}, {"isolate": "all"}):
        assert base["fingerprint"] != (await provenance({**ASKED, "read": read}))["fingerprint"]
    other = await provenance({**ASKED, "questions": {"urgent": URGENT}})
    assert base["question_set"] != other["question_set"]


MISTAKES: list[tuple[str, Any, int, str, list[str | int]]] = [
    ("nothing", b"", 400, "invalid_json", []),
    ("no JSON", b"{", 400, "invalid_json", []),
    ("no UTF-8", b'{"state": "\xff"}', 400, "invalid_json", []),
    ("a lone surrogate", b'{"state": "\\ud800", "questions": {}}', 400, "invalid_json", []),
    ("too deep", b"[" * 100_000, 400, "invalid_json", []),
    ("an array", [], 422, "invalid_request", []),
    ("no state", {"questions": TRIAGE}, 422, "invalid_request", ["state"]),
    ("a number as state", {**ASKED, "state": 1}, 422, "invalid_request", ["state"]),
    ("null as state", {**ASKED, "state": None}, 422, "invalid_request", ["state"]),
    ("no questions", {"state": ""}, 422, "invalid_request", ["questions"]),
    ("empty questions", {"state": "", "questions": {}}, 422, "invalid_request", ["questions"]),
    ("an empty id", {"state": "", "questions": {"": URGENT}}, 422, "invalid_request", ["questions"]),
    ("an unknown field", {**ASKED, "sate": 1}, 422, "invalid_request", ["sate"]),
    ("an unknown option", {**ASKED, "read": {"sample": 1}}, 422, "invalid_request", ["read", "sample"]),
    ("samples: x", {**ASKED, "read": {"samples": "x"}}, 422, "invalid_request", ["read", "samples"]),
    ("samples: true", {**ASKED, "read": {"samples": True}}, 422, "invalid_request", ["read", "samples"]),
    ("33 samples", {**ASKED, "read": {"samples": 33}}, 422, "invalid_request", ["read", "samples"]),
    ("seed: x", {**ASKED, "read": {"seed": "x"}}, 422, "invalid_request", ["read", "seed"]),
    ("another model", {**ASKED, "model": "gpt"}, 404, "unknown_model", ["model"]),
    ("no time", {**ASKED, "deadline_ms": 0}, 422, "invalid_request", ["deadline_ms"]),
    (
        "metadata that is no text",
        {**ASKED, "metadata": {"a": 1}},
        422,
        "invalid_request",
        ["metadata", "a"],
    ),
    (
        "an unknown type",
        {"state": "", "questions": {"q": {"type": "rank"}}},
        422,
        "invalid_question",
        ["questions", "q", "type"],
    ),
    (
        "no type",
        {"state": "", "questions": {"q": {}}},
        422,
        "invalid_question",
        ["questions", "q", "type"],
    ),
    (
        "a noul that asks nothing",
        {"state": "", "questions": {"q": {"type": "noul"}}},
        422,
        "invalid_question",
        ["questions", "q", "instructions"],
    ),
    (
        "one option",
        {"state": "", "questions": {"q": {"type": "choice", "criteria": {"a": None}}}},
        422,
        "invalid_question",
        ["questions", "q", "criteria"],
    ),
    (
        "an option that means a number",
        {"state": "", "questions": {"q": {"type": "choice", "criteria": {"a": 1, "b": 2}}}},
        422,
        "invalid_question",
        ["questions", "q", "criteria", "a"],
    ),
    (
        "27 levels",
        {"state": "", "questions": {"q": {**SEVERITY, "criteria": [f"level {i}" for i in range(27)]}}},
        422,
        "invalid_question",
        ["questions", "q", "criteria"],
    ),
    (
        "the same level twice",
        {"state": "", "questions": {"q": {**SEVERITY, "criteria": ["low", "low"]}}},
        422,
        "invalid_question",
        ["questions", "q", "criteria"],
    ),
    (
        "a threshold beyond one",
        {"state": "", "questions": {"q": {**URGENT, "threshold": 1.5}}},
        422,
        "invalid_question",
        ["questions", "q", "threshold"],
    ),
    (
        "an alias for nothing",
        {"state": "", "questions": {"q": {**LONG_NAMES, "aliases": {"nowhere": "A"}}}},
        422,
        "invalid_question",
        ["questions", "q", "aliases", "nowhere"],
    ),
    (
        "an alias of many tokens",
        {"state": "", "questions": {"q": {**LONG_NAMES, "aliases": {"eu-west-payments": "quite long"}}}},
        422,
        "invalid_question",
        ["questions", "q", "aliases", "eu-west-payments"],
    ),
    (
        "more options than ids",
        {
            "state": "",
            "questions": {"q": {"type": "choice", "criteria": {f"o {i}": None for i in range(129)}}},
        },
        422,
        "invalid_question",
        ["questions", "q", "criteria"],
    ),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "path"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
async def test_a_mistake_is_named_where_it_is(
    client: httpx.AsyncClient, body: Any, status: int, code: str, path: list[str | int]
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await client.post("/decide", content=content)
    error = ErrorResponse.model_validate_json(reply.content).error
    assert (status, code, path) == (reply.status_code, error.code, error.path)
    assert not error.retryable
    assert reply.headers["x-request-id"] == error.request_id


async def test_nan_and_endless_numbers_are_refused(client: httpx.AsyncClient) -> None:
    for value in ("NaN", "Infinity", "1e999", "9" * 5000):
        body = json.dumps(ASKED).replace('"502 spike"', f'{{"n": {value}}}')
        assert (await client.post("/decide", content=body)).status_code in (400, 422)


async def test_the_nearest_field_is_named(client: httpx.AsyncClient) -> None:
    reply = await client.post("/decide", json={**ASKED, "read": {"entropy_treshold": 0.1}})
    assert "Did you mean entropy_threshold?" == reply.json()["error"]["hint"]


async def test_a_body_in_another_encoding_is_refused(client: httpx.AsyncClient) -> None:
    reply = await client.post("/decide", content=b"x", headers={"Content-Encoding": "br"})
    assert (415, "unsupported_encoding") == (reply.status_code, reply.json()["error"]["code"])


async def test_a_body_beyond_the_limit_is_refused(start: Start) -> None:
    async with start(max_body_bytes=1000) as client:
        reply = await client.post("/decide", json={**ASKED, "state": "x" * 2000})
        assert (413, "body_too_large") == (reply.status_code, reply.json()["error"]["code"])


async def test_a_state_beyond_the_context_is_refused_with_the_numbers(client: httpx.AsyncClient) -> None:
    reply = await client.post("/decide", json={**ASKED, "state": "x" * 3000})
    error = reply.json()["error"]
    assert (413, "state_too_long", ["state"]) == (reply.status_code, error["code"], error["path"])
    assert "3000 tokens" in error["message"]
    assert "--max-model-len" in error["hint"]


class Failing(Recorder):
    """A backend whose reads fail."""

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        raise UpstreamFailed("the engine failed on the read with 500.")


async def test_a_failed_read_is_a_502_and_never_an_answer(start: Start) -> None:
    async with start(Failing()) as client:
        reply = await client.post("/decide", json=ASKED)
        assert (502, "engine_error", True) == (
            reply.status_code,
            reply.json()["error"]["code"],
            reply.json()["error"]["retryable"],
        )
        metrics = (await client.get("/metrics")).text
        assert 'upstream_errors_total{kind="failed"} 3.0' in metrics
        assert "retries_total 2.0" in metrics


class Slow(Recorder):
    """A backend whose reads take long, and that knows of its cancelled ones."""

    cancelled = 0

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().read(batch)


async def test_a_passed_deadline_is_a_504_and_cancels_the_reads(start: Start) -> None:
    backend = Slow()
    async with start(backend) as client:
        reply = await client.post("/decide", json={**ASKED, "deadline_ms": 30})
        assert (504, "deadline_exceeded") == (reply.status_code, reply.json()["error"]["code"])
        assert 1 == backend.cancelled
        metrics = (await client.get("/metrics")).text
        assert 'permits_in_use{unit="reads"} 0.0' in metrics
        assert 'refused_total{reason="deadline_exceeded"} 1.0' in metrics


async def test_a_full_queue_is_a_503_at_once(start: Start) -> None:
    async with start(Slow(), max_reads=1, max_waiting=0) as client:
        first = asyncio.create_task(client.post("/decide", json={**ASKED, "deadline_ms": 300}))
        await asyncio.sleep(0.05)
        reply = await client.post("/decide", json=ASKED)
        assert (503, "overloaded", "1") == (
            reply.status_code,
            reply.json()["error"]["code"],
            reply.headers["retry-after"],
        )
        assert 504 == (await first).status_code


async def test_an_unforeseen_error_is_a_500_that_tells_nothing(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Recorder):
        async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
            raise ZeroDivisionError("secret state")

    async with start(Broken()) as client:
        with caplog.at_level(logging.ERROR):
            reply = await client.post("/decide", json=ASKED)
    assert (500, "internal") == (reply.status_code, reply.json()["error"]["code"])
    assert "secret" not in reply.text
    assert reply.json()["error"]["request_id"] == reply.headers["x-request-id"]
    assert caplog.records


async def test_a_usable_request_id_is_kept_and_others_are_replaced(client: httpx.AsyncClient) -> None:
    kept = await client.post("/decide", json=ASKED, headers={"x-request-id": "trace-1.2:3"})
    assert "trace-1.2:3" == kept.headers["x-request-id"]
    replaced = await client.post("/decide", json=ASKED, headers={"x-request-id": "two words"})
    assert replaced.headers["x-request-id"].startswith("req_")


async def test_numbers_are_not_rounded(client: httpx.AsyncClient) -> None:
    reply = await client.post("/decide", json={**ASKED, "read": {"samples": 3}})
    numbers = orjson.loads(reply.content)["answers"]["team"]["probabilities"].values()
    assert any(len(repr(number)) > 12 for number in numbers)
