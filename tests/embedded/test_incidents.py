"""What the shipped model makes of the eight incidents, as `structured-server demo` asks it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from structured_server.api.app import create_app
from structured_server.api.service import build
from structured_server.cli.demo import incidents
from structured_server.cli.table import answer_word
from structured_server.settings import Settings

QUESTIONS, INCIDENTS = incidents()


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """The answers about each incident."""
    return asyncio.run(_decide_all())


async def _decide_all() -> dict[str, Any]:
    service = build(Settings(backend="embedded", log_level="error"))
    app = create_app(service)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client,
    ):
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.05)
        found = {}
        for incident in INCIDENTS:
            state = {"alert": incident["title"], "detail": incident["text"]}
            reply = await client.post("/decide", json={"state": state, "questions": QUESTIONS})
            found[incident["id"]] = reply.json()
    return found


@pytest.mark.parametrize(
    "incident", [each for each in INCIDENTS if each["clear"]], ids=lambda each: each["id"]
)
def test_a_clear_incident_is_decided_right(answers: dict[str, Any], incident: dict[str, Any]) -> None:
    found = {name: answer_word(each) for name, each in answers[incident["id"]]["answers"].items()}
    assert incident["expected"] == found


def test_at_most_one_clear_incident_asks_for_more_draws(answers: dict[str, Any]) -> None:
    clear = [each["id"] for each in INCIDENTS if each["clear"]]
    assert sum(answers[identifier]["reading"]["extended"] for identifier in clear) <= 1


def test_three_of_four_ambiguous_incidents_ask_for_more_draws(answers: dict[str, Any]) -> None:
    ambiguous = [each["id"] for each in INCIDENTS if not each["clear"]]
    assert sum(answers[identifier]["reading"]["extended"] for identifier in ambiguous) >= 3
