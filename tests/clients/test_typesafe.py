"""`typesafe-sdk`, sync and async, as installed."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any, Literal

import httpx2
import pytest
import typesafe_sdk
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Choice,
    Noul,
    RetryPolicy,
    Score,
    SystemOneResponse,
    TypeSafeClient,
)

from tests.clients.conftest import KEY
from tests.clients.ticket import (
    LEVELS,
    ODD_OPTIONS,
    QUESTIONS,
    STATE,
    TEAMS,
    UNANSWERABLE,
    assert_choice,
    assert_score,
    choice_confidence,
)

ONCE = RetryPolicy(max_retries=0)


def assert_answers(response: SystemOneResponse) -> None:
    """Hold a response to `QUESTIONS` against all that is promised of it."""
    assert list(QUESTIONS) == list(response.answers)
    assert 0 <= response.nouls["wake someone?"].noul <= 1
    team, odd = response.choices["team"], response.choices["odd"]
    assert_choice(team.choice, team.probabilities, list(TEAMS))
    assert pytest.approx(choice_confidence(team.probabilities)) == team.confidence
    assert_choice(odd.choice, odd.probabilities, ODD_OPTIONS)
    severity = response.scores["severity"]
    assert_score(severity.score, severity.probabilities)
    assert dict(enumerate(LEVELS)) == severity.legend
    assert "triage-demo" == response.model
    assert 4 == response.usage.output_tokens
    assert (response.usage.input_tokens or 0) > 0


@pytest.fixture(autouse=True)
def pointed_at_the_server(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    """Say by environment variables alone where the server is, as docs/clients.md has it."""
    monkeypatch.setenv("TYPESAFE_BASE_URL", server)
    monkeypatch.setenv("TYPESAFE_API_KEY", "any")


def test_the_environment_is_all_the_sync_client_needs() -> None:
    with TypeSafeClient() as client:
        response = client.system_one(STATE, QUESTIONS)
    assert_answers(response)
    assert response.request_id


def test_a_base_url_with_v1_works_too(server: str) -> None:
    with TypeSafeClient(base_url=f"{server}/v1") as client:
        assert ["triage-demo"] == [model.name for model in client.models.list().models]
        assert_answers(client.system_one(STATE, QUESTIONS))


async def test_the_async_client_asks_many_times_at_once_and_gets_each_answer_to_its_own_state() -> None:
    alarms = [STATE, "One customer asks how to export an invoice as PDF."]
    async with AsyncTypeSafeClient() as client:
        alone = [await client.system_one(alarm, QUESTIONS) for alarm in alarms]
        together = await asyncio.gather(*(client.system_one(alarm, QUESTIONS) for alarm in alarms * 5))
    for response in together:
        assert_answers(response)
    assert [response.answers for response in alone] * 5 == [response.answers for response in together]
    assert alone[0].answers != alone[1].answers


def test_typed_questions_are_answered_as_plain_ones_are() -> None:
    typed: dict[str, Any] = {
        "wake someone?": Noul(instructions="Should we wake an on-call engineer?"),
        "team": Choice(instructions="Which team owns the incident?", criteria=dict(TEAMS)),
        "severity": Score(instructions="How severe is customer impact?", criteria=[*LEVELS]),
    }
    plain = {name: QUESTIONS[name] for name in typed}
    with TypeSafeClient() as client:
        assert client.system_one(STATE, plain).answers == client.system_one(STATE, typed).answers


def test_a_body_compressed_with_zstd_is_answered_as_the_plain_one_is() -> None:
    sent: list[str | None] = []
    hooks = {"request": [lambda request: sent.append(request.headers.get("content-encoding"))]}
    long_state = {"alert": STATE, "log": [f"upstream {i} timed out" for i in range(200)]}
    answers = []
    ways: tuple[Literal["zstd"], Literal[False]] = ("zstd", False)
    for compression in ways:
        with TypeSafeClient(
            compression=compression,
            http_client=httpx2.Client(event_hooks=hooks, timeout=30),
        ) as client:
            answers.append(client.system_one(long_state, QUESTIONS).answers)
    assert ["zstd", None] == sent
    assert answers[0] == answers[1]


@pytest.mark.parametrize("model", ["jev-latest", "jev-preview", "jev-1.13.0", "jev-1.14.0", "triage-demo"])
def test_its_own_model_names_mean_the_served_one(model: str) -> None:
    with TypeSafeClient(model=model) as client:
        assert "triage-demo" == client.system_one(STATE, {"team": QUESTIONS["team"]}).model


def test_listed_models_can_be_asked_for_and_have_a_date() -> None:
    with TypeSafeClient() as client:
        (model,) = client.models.list().models
        assert date.fromisoformat(model.release_date) <= date.today()  # noqa: DTZ011 - the server's own day
        assert_answers(client.system_one(STATE, QUESTIONS, model=model.name))


def test_an_unknown_model_is_its_not_found_error() -> None:
    with TypeSafeClient(retry=ONCE) as client, pytest.raises(typesafe_sdk.TypeSafeNotFoundError) as caught:
        client.system_one(STATE, QUESTIONS, model="gpt-6")
    assert 404 == caught.value.status
    assert "triage-demo" in str(caught.value)
    assert caught.value.request_id


def test_a_question_that_cannot_be_answered_is_its_unprocessable_error_and_names_the_field() -> None:
    with (
        TypeSafeClient(retry=ONCE) as client,
        pytest.raises(typesafe_sdk.TypeSafeUnprocessableEntityError, match=r"questions\.team") as caught,
    ):
        client.system_one(STATE, UNANSWERABLE)
    assert 422 == caught.value.status


def test_a_wrong_key_is_its_authentication_error(keyed_server: str) -> None:
    with (
        TypeSafeClient(base_url=keyed_server, api_key="wrong") as client,
        pytest.raises(typesafe_sdk.TypeSafeAuthenticationError) as caught,
    ):
        client.system_one(STATE, QUESTIONS)
    assert 401 == caught.value.status


def test_a_key_that_got_lost_on_the_way_is_its_permission_error(keyed_server: str) -> None:
    losing = httpx2.Client(event_hooks={"request": [lambda request: request.headers.pop("authorization")]})
    with (
        TypeSafeClient(base_url=keyed_server, api_key=KEY, http_client=losing) as client,
        pytest.raises(typesafe_sdk.TypeSafePermissionDeniedError) as caught,
    ):
        client.system_one(STATE, QUESTIONS)
    assert 403 == caught.value.status


async def test_the_servers_key_opens_it_and_the_async_client_raises_the_same_classes(
    keyed_server: str,
) -> None:
    async with AsyncTypeSafeClient(base_url=keyed_server, api_key=KEY, retry=ONCE) as client:
        assert_answers(await client.system_one(STATE, QUESTIONS))
        with pytest.raises(typesafe_sdk.TypeSafeNotFoundError):
            await client.system_one(STATE, QUESTIONS, model="gpt-6")
        with pytest.raises(typesafe_sdk.TypeSafeUnprocessableEntityError):
            await client.system_one(STATE, UNANSWERABLE)
    async with AsyncTypeSafeClient(base_url=keyed_server, api_key="wrong", retry=ONCE) as client:
        with pytest.raises(typesafe_sdk.TypeSafeAuthenticationError):
            await client.models.list()
