"""`POST /decide` answered by the embedded model, in process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from structured_server.api.app import create_app
from structured_server.api.service import build
from structured_server.backends.embedded import DemoModel
from structured_server.cli.demo import incidents
from structured_server.settings import Settings
from structured_server.wire.decide_response import DecideResponse

ANIMALS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the embedded model in process."""
    app = create_app(build(Settings(backend="embedded", log_level="error", **settings)))
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.005)
        yield client


async def decide(client: httpx.AsyncClient, questions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Decide, and hold the answer against its documented type."""
    body = {"state": "502 spike on checkout", "questions": questions, **fields}
    reply = await client.post("/decide", json=body)
    assert 200 == reply.status_code, reply.text
    DecideResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


async def test_the_eight_incidents_are_decided(demo_model: DemoModel) -> None:
    questions, asked = incidents()
    async with serving() as client:
        for incident in asked:
            answer = await decide(client, questions, state=incident["text"])
            assert ["urgent", "team", "severity"] == list(answer["answers"])
            assert ("triage-demo", "embedded", demo_model.revision) == (
                answer["model"],
                answer["provenance"]["backend"],
                answer["provenance"]["model_revision"],
            )
            for each in answer["answers"].values():
                assert 1 == pytest.approx(sum(each["probabilities"].values()))
                assert each["label_mass"] is not None
            assert "outside_demo_domain" not in {each["code"] for each in answer["warnings"]}


async def test_the_same_request_gets_the_same_answer() -> None:
    questions, _ = incidents()
    async with serving() as client:
        first, second = [await decide(client, questions, read={"samples": 3}) for _ in range(2)]
    for name, each in first["answers"].items():
        assert each["probabilities"] == pytest.approx(second["answers"][name]["probabilities"], abs=1e-6)
    assert first["provenance"] == second["provenance"]


async def test_tokens_from_memory_are_told() -> None:
    questions, _ = incidents()
    async with serving() as client:
        usage = [(await decide(client, questions, read={"samples": 2}))["usage"] for _ in range(2)]
    length = usage[0]["input_tokens"]
    assert [2 * length, 2 * length] == [each["engine_input_tokens"] for each in usage]
    assert [length, 2 * length] == [each["cached_input_tokens"] for each in usage]


async def test_each_question_outside_its_domain_carries_a_warning() -> None:
    questions, _ = incidents()
    outside = {
        "rain": {"type": "noul", "instructions": "Does it rain?"},
        "animal": {"type": "choice", "criteria": dict.fromkeys(ANIMALS)},
    }
    async with serving() as client:
        answer = await decide(client, {**questions, **outside})
    warned = [each["question"] for each in answer["warnings"] if each["code"] == "outside_demo_domain"]
    assert ["rain", "animal"] == warned


async def test_a_wide_choice_is_one_forward() -> None:
    """Two hundred options, each with its variants, are more ids than vLLM allows."""
    options = [f"option number {number}" for number in range(200)]
    async with serving() as client:
        questions = {"q": {"type": "choice", "criteria": dict.fromkeys(options)}}
        answer = await decide(client, questions, read={"samples": 1})
    assert 1 == answer["reading"]["reads"]
    assert options == list(answer["answers"]["q"]["probabilities"])


async def test_its_own_threshold_decides_when_to_read_again(demo_model: DemoModel) -> None:
    """A threshold that is given wins, the server's as well as the request's."""
    questions, asked = incidents()
    async with serving() as client:
        for incident in asked:
            answer = await decide(client, questions, state=incident["text"])
            above = [
                name
                for name, each in answer["answers"].items()
                if each["noise"]["first_entropy"] > getattr(demo_model.entropy_thresholds, each["type"])
            ]
            assert above == answer["reading"]["extended_by"]
        forced = await decide(client, questions, read={"entropy_threshold": 2})
        assert not forced["reading"]["extended"]
    async with serving(entropy_threshold=0) as client:
        assert ["urgent", "team", "severity"] == (await decide(client, questions))["reading"]["extended_by"]


async def test_a_model_of_another_name_is_not_served() -> None:
    async with serving() as client:
        body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}, "model": "dgemma"}
        reply = await client.post("/decide", json=body)
        assert (404, "This server has triage-demo.") == (reply.status_code, reply.json()["error"]["hint"])
        assert 200 == (await client.post("/decide", json={**body, "model": "triage-demo"})).status_code


async def test_a_state_that_is_too_long_is_refused_with_what_fits() -> None:
    questions, _ = incidents()
    async with serving() as client:
        reply = await client.post("/decide", json={"state": "disk full " * 4000, "questions": questions})
        assert (413, "state_too_long") == (reply.status_code, reply.json()["error"]["code"])
        long = await decide(client, questions, state="disk full " * 1000)
    assert 1024 < long["usage"]["input_tokens"]


async def test_many_at_once_are_all_answered() -> None:
    questions, asked = incidents()
    async with serving(max_waiting=200) as client:
        answers = await asyncio.gather(
            *(decide(client, questions, state=f"{i} {asked[i % 8]['text']}") for i in range(40))
        )
    assert 40 == len({json.dumps(each["answers"]) for each in answers})


async def test_its_slots_can_be_filled_with_the_mask_token() -> None:
    questions, _ = incidents()
    async with serving(slot_fill="mask") as client:
        assert 1 == (await decide(client, questions))["reading"]["reads"]


async def test_the_clear_incidents_get_their_team_and_their_urgency() -> None:
    """What the shipped model can be relied on for; its evaluation says what not."""
    questions, asked = incidents()
    async with serving() as client:
        for incident in (each for each in asked if each["clear"]):
            state = {"alert": incident["title"], "detail": incident["text"]}
            answers = (await decide(client, questions, state=state))["answers"]
            assert incident["expected"]["team"] == answers["team"]["answer"]
            assert (incident["expected"]["urgent"] == "yes") == answers["urgent"]["answer"]
