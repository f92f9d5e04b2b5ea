"""pydantic-ai's System One model: an agent whose output type is the questions."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelRequestRejectedError,
)
from pydantic_ai.messages import ModelResponse

from tests.clients.conftest import KEY
from tests.clients.ticket import LEVELS, STATE, UNANSWERABLE, assert_choice, assert_probabilities

TEAMS = ("compute", "networking", " padded ", "caf\u00e9", "cafe\u0301", "日本")
RUBRIC: Any = {"anyOf": [{"const": index, "description": level} for index, level in enumerate(LEVELS)]}


class Incident(BaseModel):
    """Sort an alarm."""

    wake: bool = Field(description="Should we wake an on-call engineer?")
    urgency: Annotated[float, Field(ge=0, le=1, description="Does it need action right now?")]
    team: Literal["compute", "networking", " padded ", "caf\u00e9", "cafe\u0301", "日本"] = Field(
        description="Which team owns the incident?"
    )
    severity: int = Field(description="How severe is customer impact?", json_schema_extra=RUBRIC)


@pytest.fixture(autouse=True)
def pointed_at_the_server(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    """Say by environment variables alone where the server is, as docs/clients.md has it."""
    monkeypatch.setenv("SYSTEM_ONE_BASE_URL", server)


async def incident_of(model: str, text: str, settings: ModelSettings | None = None) -> ModelResponse:
    """Have an agent sort an alarm, hold its output against the distributions, return the model's reply."""
    async with Agent(f"system-one:{model}", output_type=Incident) as agent:
        result = await agent.run(text, model_settings=settings)
    output = result.output
    reply = next(each for each in result.all_messages() if isinstance(each, ModelResponse))
    details = reply.provider_details or {}
    assert 0 <= output.urgency <= 1
    team, severity = (details["probabilities"][name] for name in ("team", "severity"))
    assert_choice(output.team, team, TEAMS)
    assert_probabilities(severity, [str(level) for level in range(len(LEVELS))])
    assert output.severity == math.floor(sum(int(level) * p for level, p in severity.items()) + 0.5)
    assert "triage-demo" == reply.model_name
    assert 4 == reply.usage.output_tokens
    return reply


async def test_an_agent_fills_its_output_type_from_the_answers() -> None:
    one = await incident_of("jev-latest", STATE)
    other = await incident_of("triage-demo", "One customer asks how to export an invoice as PDF.")
    assert one.provider_details != other.provider_details


async def test_an_unknown_model_is_its_not_found_error() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        await incident_of("gpt-6", STATE)
    assert isinstance(caught.value, ModelHTTPError)
    assert 404 == caught.value.status_code


async def test_a_question_that_cannot_be_answered_is_its_rejected_error() -> None:
    with pytest.raises(ModelRequestRejectedError) as caught:
        await incident_of("jev-latest", STATE, ModelSettings(extra_body={"questions": UNANSWERABLE}))
    assert isinstance(caught.value, ModelHTTPError)
    assert 422 == caught.value.status_code
    assert "questions" in str(caught.value.body)


@pytest.mark.parametrize(("key", "status"), [("wrong", 401), (None, 403)])
async def test_a_wrong_key_and_none_are_its_authentication_error(
    key: str | None, status: int, monkeypatch: pytest.MonkeyPatch, keyed_server: str
) -> None:
    monkeypatch.setenv("SYSTEM_ONE_BASE_URL", keyed_server)
    if key:
        monkeypatch.setenv("SYSTEM_ONE_API_KEY", key)
    with pytest.raises(ModelAuthenticationError) as caught:
        await incident_of("jev-latest", STATE)
    assert isinstance(caught.value, ModelHTTPError)
    assert status == caught.value.status_code


async def test_the_servers_key_opens_it_and_the_url_may_end_in_v1(
    monkeypatch: pytest.MonkeyPatch, keyed_server: str
) -> None:
    monkeypatch.setenv("SYSTEM_ONE_BASE_URL", f"{keyed_server}/v1")
    monkeypatch.setenv("SYSTEM_ONE_API_KEY", KEY)
    await incident_of("jev-latest", STATE)
