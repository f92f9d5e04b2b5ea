"""The whole method on the wire: what each field gives, and what is said where it cannot be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from structured_server.wire.decide_response import DecideResponse, SkippedAnswer
from tests.api.conftest import serving
from tests.fake_backend import FakeBackend

NOUL = {"type": "noul", "instructions": "Now?"}
TEAM = {"type": "choice", "criteria": {"compute": None, "storage": None, "billing": None}}
LEVEL = {"type": "score", "criteria": ["none", "minor", "major"]}
QUESTIONS: dict[str, Any] = {"urgent": NOUL, "team": TEAM, "level": LEVEL}


async def _answer(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    reply = await client.post("/decide", json={"state": "502s", "questions": QUESTIONS} | fields)
    assert 200 == reply.status_code, reply.text
    DecideResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


async def test_a_question_that_was_not_asked_is_skipped_and_not_undecided(client: httpx.AsyncClient) -> None:
    first = (await _answer(client))["answers"]["team"]["answer"]
    other = next(team for team in TEAM["criteria"] if team != first)
    questions = QUESTIONS | {"level": LEVEL | {"ask_if": {"team": [other]}}}
    answer = await _answer(client, questions=questions)
    assert {
        "type": "score",
        "status": "skipped",
        "answer": None,
        "reasons": [{"code": "ask_if_not_met", "value": first, "limit": [other], "question": "team"}],
    } == answer["answers"]["level"]
    assert isinstance(DecideResponse.model_validate_json(json.dumps(answer)).answers["level"], SkippedAnswer)
    assert [] == answer["undecided"]
    assert 2 == answer["usage"]["output_tokens"]
    assert [["urgent", "team"], ["level"]] == answer["reading"]["stages"]


@pytest.mark.parametrize(
    ("name", "wanted"), [("urgent", [True, False]), ("team", [*TEAM["criteria"]]), ("level", [0, "1", 2])]
)
async def test_conditions_name_answers_as_answers_do(
    client: httpx.AsyncClient, name: str, wanted: list[Any]
) -> None:
    questions = QUESTIONS | {"last": NOUL | {"ask_if": {name: wanted}}}
    answer = await _answer(client, questions=questions)
    assert "decided" == answer["answers"]["last"]["status"]


@pytest.mark.parametrize(
    ("question", "path"),
    [
        (NOUL | {"depends_on": ["nobody"]}, ["questions", "last", "depends_on"]),
        (NOUL | {"depends_on": ["last"]}, ["questions", "last", "depends_on"]),
        (NOUL | {"ask_if": {"team": ["nobody"]}}, ["questions", "last", "ask_if", "team"]),
        (NOUL | {"ask_if": {"team": []}}, ["questions", "last", "ask_if", "team"]),
        (NOUL | {"ask_if": {"level": [3]}}, ["questions", "last", "ask_if", "level"]),
        (NOUL | {"ask_if": {"urgent": [None]}}, ["questions", "last", "ask_if", "urgent", 0]),
    ],
)
async def test_conditions_that_cannot_be_met_are_refused(
    client: httpx.AsyncClient, question: dict[str, Any], path: list[Any]
) -> None:
    body = {"state": "502s", "questions": QUESTIONS | {"last": question}}
    reply = await client.post("/decide", json=body)
    assert (422, path) == (reply.status_code, reply.json()["error"]["path"])


async def test_a_circle_is_refused_with_the_way_around(client: httpx.AsyncClient) -> None:
    questions = {
        "a": NOUL | {"depends_on": ["b"]},
        "b": NOUL | {"ask_if": {"c": [True]}},
        "c": NOUL | {"depends_on": ["a"]},
    }
    reply = await client.post("/decide", json={"state": "502s", "questions": questions})
    assert 422 == reply.status_code
    assert "a needs b needs c needs a" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("read", "field"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 9}, "steps"),
        ({"think": 5000}, "think"),
        ({"max_reads": 0}, "max_reads"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": {"noul": 0}}, "temperature"),
        ({"temperature": {"noul": 101}}, "temperature"),
        ({"temperature": 101}, "temperature"),
        ({"temperature": {"nobody": 1}}, "temperature"),
        ({"entropy_threshold": -1}, "entropy_threshold"),
        ({"rotate": 1}, "rotate"),
        ({"long_state": "cut"}, "long_state"),
        ({"samples": 32, "max_reads": 31}, "max_reads"),
        # What this backend cannot do.
        ({"steps": 2}, "steps"),
        ({"constrained": True}, "constrained"),
        ({"think": 5}, "think"),
    ],
)
async def test_what_cannot_be_read_is_refused_where_it_stands(
    client: httpx.AsyncClient, read: dict[str, Any], field: str
) -> None:
    reply = await client.post("/decide", json={"state": "502s", "questions": QUESTIONS, "read": read})
    assert (422, ["read", field]) == (reply.status_code, reply.json()["error"]["path"][:2])


async def test_orders_are_reported_where_there_were_several(client: httpx.AsyncClient) -> None:
    answers = (await _answer(client, read={"samples": 4, "rotate": True}))["answers"]
    assert (2, 3) == (answers["urgent"]["noise"]["orders"], answers["team"]["noise"]["orders"])
    assert 0 < answers["team"]["noise"]["order_spread"] <= 1
    assert "orders" not in answers["level"]["noise"]
    still = (await _answer(client, read={"samples": 4}))["answers"]
    assert all("orders" not in each["noise"] for each in still.values())


async def test_a_temperature_makes_answers_less_sure_and_leaves_the_label_mass(
    client: httpx.AsyncClient,
) -> None:
    plain = (await _answer(client, read={"samples": 1}))["answers"]
    warm = (await _answer(client, read={"samples": 1, "temperature": {"choice": 3.0}}))["answers"]
    assert plain["team"]["entropy"] < warm["team"]["entropy"]
    assert plain["team"]["noise"]["first_entropy"] == warm["team"]["noise"]["first_entropy"]
    assert plain["team"]["label_mass"] == warm["team"]["label_mass"]
    assert plain["urgent"] == warm["urgent"]


async def test_a_model_without_a_thought_channel_cannot_think() -> None:
    backend = FakeBackend(generation=True, thought=[16, 18])
    async with serving(backend) as client:
        reply = await client.post(
            "/decide", json={"state": "502s", "questions": QUESTIONS, "read": {"think": 5}}
        )
    assert (422, ["read", "think"]) == (reply.status_code, reply.json()["error"]["path"])
    assert [] == backend.generated


async def test_a_fitted_policy_is_named_and_applied_only_where_it_fits(tmp_path: Path) -> None:
    async with serving() as client:
        plain = await _answer(client, read={"samples": 1})
    file = tmp_path / "policy.yaml"
    fitted = {"policy": "p", "fingerprint": plain["provenance"]["fingerprint"], "temperatures": {"choice": 3}}
    file.write_text(json.dumps(fitted))
    async with serving(policy=str(file)) as client:
        fits = await _answer(client, read={"samples": 1})
        other = await _answer(client, read={"samples": 1, "template": "lines"})
    temperatures = {"noul": 1.0, "choice": 3.0, "score": 1.0}
    assert {"policy": "p", "temperatures": temperatures, "fingerprint_match": True} == fits["calibration"]
    assert plain["answers"]["team"]["entropy"] < fits["answers"]["team"]["entropy"]
    assert plain["provenance"]["fingerprint"] != fits["provenance"]["fingerprint"]
    assert {"policy": "p", "temperatures": None, "fingerprint_match": False} == other["calibration"]
    assert "policy_mismatch" in {warning["code"] for warning in other["warnings"]}
    assert None is plain["calibration"]


@pytest.mark.parametrize("keep", ["head", "tail", "middle"])
async def test_a_long_state_is_cut_and_both_lengths_told(keep: str) -> None:
    async with serving(FakeBackend(max_model_len=1500)) as client:
        body = {"state": "ab" * 2000, "questions": QUESTIONS}
        refused = await client.post("/decide", json=body)
        answer = await _answer(client, state=body["state"], read={"long_state": keep})
    assert (413, "state_too_long") == (refused.status_code, refused.json()["error"]["code"])
    assert answer["reading"]["state_tokens_used"] < 1500 < answer["reading"]["state_tokens"]
    assert "state_truncated" in {warning["code"] for warning in answer["warnings"]}


async def test_a_text_only_backend_takes_no_images(client: httpx.AsyncClient) -> None:
    images = ["data:image/png;base64,iVBORw0KGgo="]
    reply = await client.post("/decide", json={"state": "x", "questions": QUESTIONS, "images": images})
    assert (422, ["images"]) == (reply.status_code, reply.json()["error"]["path"])


@pytest.mark.parametrize(
    "image",
    [
        "https://example.com/cat.png",
        "http://127.0.0.1:1/cat.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "data:text/plain;base64,AAAA",
        "data:image/png;base64,!!!!",
        "data:image/png;base64,AAAA",
        "",
    ],
)
async def test_what_is_no_image_is_refused_and_never_fetched(client: httpx.AsyncClient, image: str) -> None:
    body = {"state": "x", "questions": QUESTIONS, "images": [image]}
    reply = await client.post("/decide", json=body)
    assert (422, ["images", 0]) == (reply.status_code, reply.json()["error"]["path"])
    assert "passwd" not in reply.text
