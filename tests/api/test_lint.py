"""`POST /decide/lint` over HTTP: the shape of reports, what is refused, and that nothing is read."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from structured_server.api.app import create_app
from structured_server.api.service import assemble
from structured_server.settings import Settings
from structured_server.wire.decide_response import ErrorResponse
from structured_server.wire.lint import LintResponse
from tests.api.conftest import WORDS, Start
from tests.fake_backend import FakeBackend
from tests.golden.requests import REQUESTS, TEAM, TRIAGE, URGENT
from tests.toy import ToyTokenizer

DOWN = {"type": "noul", "instructions": "Is it down?"}
NOT_DOWN = {"type": "noul", "instructions": "Is it not down?"}


async def linted(client: httpx.AsyncClient, questions: dict[str, Any], **more: Any) -> LintResponse:
    """Lint questions and hold the report against its documented type."""
    reply = await client.post("/decide/lint", json={"questions": questions, **more})
    assert 200 == reply.status_code, reply.text
    return LintResponse.model_validate_json(reply.content)


async def refused(client: httpx.AsyncClient, body: dict[str, Any], status: int = 422) -> ErrorResponse:
    """Send what cannot be linted."""
    reply = await client.post("/decide/lint", json=body)
    assert status == reply.status_code, reply.text
    return ErrorResponse.model_validate_json(reply.content)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_report_foretells_the_decision(client: httpx.AsyncClient, name: str) -> None:
    asked = {field: value for field, value in REQUESTS[name].items() if field != "metadata"}
    reply = await client.post("/v1/decide/lint", json=asked)
    assert 200 == reply.status_code, reply.text
    report = LintResponse.model_validate_json(reply.content)
    answer = (await client.post("/decide", json=asked)).json()
    assert answer["reading"]["groups"] == [[each.id for each in group.questions] for group in report.groups]
    assert answer["reading"]["canvas_width"] == max(group.width for group in report.groups)
    assert answer["reading"]["state_tokens"] == report.tokens.state
    aliases = {each.id: each.aliases for group in report.groups for each in group.questions if each.aliases}
    assert answer["reading"]["aliases"] == aliases
    assert answer["provenance"]["question_set"] == report.provenance.question_set
    assert answer["provenance"]["fingerprint"] == report.provenance.fingerprint
    assert report.reads.one_draw <= answer["reading"]["reads"] <= report.reads.as_asked
    assert answer["usage"]["input_tokens"] == sum(group.prompt_tokens for group in report.groups)


async def test_warnings_name_their_question(client: httpx.AsyncClient) -> None:
    report = await linted(client, {"first": DOWN, "not_down": NOT_DOWN})
    assert [("opposite_nouls", "not_down"), ("nouls_share_canvas", None), ("leading_id", "not_down")] == [
        (each.code, each.question) for each in report.warnings
    ]
    assert [] == (await linted(client, {"first": DOWN})).warnings


async def test_states_are_counted_against_the_room(client: httpx.AsyncClient) -> None:
    plain = await linted(client, {"first": DOWN})
    assert (None, None, 2048) == (plain.tokens.state, plain.tokens.longest_state, plain.tokens.limit)
    room = plain.tokens.room
    assert room == 2048 - plain.tokens.around_state
    report = await linted(client, {"first": DOWN}, state="x" * (room + 1), longest_state_tokens=room + 2)
    assert room + 1 == report.tokens.state
    assert ["state_too_long_for_engine"] * 2 == [each.code for each in report.warnings]
    assert "x" * 9 not in report.model_dump_json()


async def test_against_says_what_moves_numbers(client: httpx.AsyncClient) -> None:
    old = {"questions": TRIAGE, "read": {"samples": 2}}
    new = {**TRIAGE, "team": {**TEAM, "instructions": "Who owns it?"}}
    report = await linted(client, new, read={"samples": 2}, against=old)
    assert report.against is not None
    assert [("instructions", "team", list(TRIAGE))] == [
        (each.code, each.question, each.moves) for each in report.against.changes
    ]
    assert list(TRIAGE) == report.against.moves
    assert report.provenance.fingerprint != report.against.fingerprint
    assert report.provenance.question_set != report.against.question_set


async def test_against_is_silent_about_what_moves_nothing(client: httpx.AsyncClient) -> None:
    judged = {**TRIAGE, "urgent": {**URGENT, "threshold": 0.9, "abstain": {"min_label_mass": 0.5}}}
    report = await linted(client, judged, against={"questions": TRIAGE})
    assert report.against is not None
    assert ([], []) == (report.against.changes, report.against.moves)


async def test_errors_name_the_field_and_no_text(client: httpx.AsyncClient) -> None:
    bad = {"type": "choice", "instructions": "SECRET", "criteria": {"SECRET": "SECRET"}}
    for body, path in (
        ({"questions": {"q": bad}}, ["questions", "q", "criteria"]),
        (
            {"questions": TRIAGE, "against": {"questions": {"q": bad}}},
            ["against", "questions", "q", "criteria"],
        ),
        (
            {"questions": TRIAGE, "against": {"questions": {"q": {**TEAM, "criteria": {"SECRET": 1}}}}},
            ["against", "questions", "q", "criteria", "SECRET"],
        ),
        (
            {"questions": TRIAGE, "against": {"questions": {"q": {"type": "x"}}}},
            ["against", "questions", "q", "type"],
        ),
        ({"questions": TRIAGE, "read": {"steps": 2}}, ["read", "steps"]),
        (
            {"questions": TRIAGE, "against": {"questions": TRIAGE, "read": {"steps": 2}}},
            ["against", "read", "steps"],
        ),
        ({"questions": TRIAGE, "longest_state_tokens": -1}, ["longest_state_tokens"]),
        ({"questions": TRIAGE, "state": 3}, ["state"]),
        ({}, ["questions"]),
    ):
        error = (await refused(client, body)).error
        assert path == error.path
        assert "SECRET" not in error.message.replace("criteria.SECRET", "")


async def test_unknown_fields_are_refused_with_the_nearest_known_one(client: httpx.AsyncClient) -> None:
    error = (await refused(client, {"questions": TRIAGE, "longest_state_token": 3})).error
    assert "Did you mean longest_state_tokens?" == error.hint
    body = {"questions": TRIAGE, "against": {"questions": TRIAGE, "reed": {}}}
    error = (await refused(client, body)).error
    assert (["against", "reed"], "Did you mean read?") == (error.path, error.hint)


async def test_another_model_is_unknown(client: httpx.AsyncClient) -> None:
    error = (await refused(client, {"questions": TRIAGE, "model": "other"}, 404)).error
    assert "unknown_model" == error.code


async def test_keys_guard_it_and_bodies_have_a_limit(start: Start) -> None:
    async with start(api_key=("first",), max_body_bytes=1000) as client:
        assert 401 == (await client.post("/decide/lint", json={"questions": TRIAGE})).status_code
        bearer = {"Authorization": "Bearer first"}
        long = {"questions": TRIAGE, "state": "x" * 1000}
        assert 413 == (await client.post("/decide/lint", json=long, headers=bearer)).status_code


async def test_it_needs_no_ready_engine_and_reads_nothing() -> None:
    backend = FakeBackend(max_model_len=None)
    app = create_app(
        assemble(Settings(upstream="http://engine", model="dgemma"), ToyTokenizer(WORDS), backend)
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert 503 == (await client.post("/decide", json={"questions": TRIAGE, "state": ""})).status_code
        report = await linted(client, TRIAGE, longest_state_tokens=10**6)
    assert (False, None, None) == (report.engine.ready, report.tokens.limit, report.tokens.room)
    assert [] == backend.batches
