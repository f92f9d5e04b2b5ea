"""The `openai` package: `decisions`, and questions in a system message through `chat.completions`."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion
from openai.types.decision import (
    AnswerAnswerResourceChoice,
    AnswerAnswerResourcePredicate,
    AnswerAnswerResourceScore,
    Decision,
)

from tests.clients.conftest import ALIAS, KEY
from tests.clients.ticket import (
    LEVELS,
    ODD_OPTIONS,
    STATE,
    TOO_MANY_LEVELS,
    assert_choice,
    assert_probabilities,
    assert_score,
)

DECIDED: list[Any] = [
    {"type": "predicate", "name": "wake", "instructions": "Should we wake an on-call engineer?"},
    {
        "type": "choice",
        "name": "odd",
        "instructions": "Which word fits?",
        "choices": [{"value": option} for option in ODD_OPTIONS],
    },
    {
        "type": "choice",
        "name": "rollback",
        "instructions": "Do we roll back?",
        "choices": [
            {"value": True, "description": "the rollout did it"},
            {"value": "true"},
            {"value": False},
        ],
    },
    {
        "type": "score",
        "name": "severity",
        "instructions": "How severe is customer impact?",
        "levels": [{"label": level} for level in LEVELS],
    },
]
TOO_MANY: list[Any] = [
    {
        "type": "score",
        "name": "severity",
        "instructions": "How severe?",
        "levels": [{"label": level} for level in TOO_MANY_LEVELS],
    }
]
SCHEMA = {
    "questions": [
        {"id": "wake someone?", "type": "noul", "instructions": "Should we wake an on-call engineer?"},
        {"id": "odd", "type": "choice", "instructions": "Which word fits?", "options": [*ODD_OPTIONS]},
        {"id": "severity", "type": "score", "instructions": "How severe?", "levels": [*LEVELS]},
    ]
}
MESSAGES: list[Any] = [
    {"role": "system", "content": json.dumps(SCHEMA)},
    {"role": "user", "content": STATE},
]


def assert_decision(decision: Decision) -> None:
    """Hold a reply to `DECIDED` against all that is promised of it."""
    wake, odd, rollback, severity = decision.answers
    assert isinstance(wake, AnswerAnswerResourcePredicate)
    assert 0 <= wake.probability <= 1
    assert isinstance(odd, AnswerAnswerResourceChoice)
    assert isinstance(odd.choice, str)
    assert_choice(odd.choice, {str(each.value): each.probability for each in odd.probabilities}, ODD_OPTIONS)
    assert isinstance(rollback, AnswerAnswerResourceChoice)
    assert [(bool, True), (str, "true"), (bool, False)] == [
        (type(each.value), each.value) for each in rollback.probabilities
    ]
    best = max(rollback.probabilities, key=lambda each: each.probability).value
    assert (type(best), best) == (type(rollback.choice), rollback.choice)
    assert isinstance(severity, AnswerAnswerResourceScore)
    assert list(LEVELS) == [each.label for each in severity.probabilities]
    assert_score(severity.score, {each.value: each.probability for each in severity.probabilities})
    assert ["wake", "odd", "rollback", "severity"] == [answer.name for answer in decision.answers]
    assert decision.usage.input_tokens + decision.usage.output_tokens == decision.usage.total_tokens


def assert_completion(completion: ChatCompletion) -> None:
    """Hold a reply to `MESSAGES` against all that is promised of it."""
    (choice,) = completion.choices
    assert "stop" == choice.finish_reason
    answers = json.loads(choice.message.content or "")["answers"]
    assert ["wake someone?", "odd", "severity"] == list(answers)
    wake, odd, severity = answers.values()
    assert ["yes", "no"] == list(wake["probabilities"])
    assert wake["probabilities"]["yes"] == wake["noul"]
    assert_choice(odd["choice"], odd["probabilities"], ODD_OPTIONS)
    assert_probabilities(severity["probabilities"], LEVELS)
    mean_from_1 = sum(i * p for i, p in enumerate(severity["probabilities"].values(), start=1))
    assert pytest.approx(mean_from_1) == severity["score"]


@pytest.fixture(autouse=True)
def pointed_at_the_server(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    """Say by environment variables alone where the server is, as docs/clients.md has it."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "any")


@pytest.mark.parametrize("model", ["triage-demo", "jev-latest"])
def test_decisions_come_in_the_order_of_the_questions_and_keep_the_types_of_their_values(model: str) -> None:
    with OpenAI() as client:
        assert_decision(client.decisions.create(model=model, input=STATE, questions=DECIDED))


def test_messages_of_text_and_json_are_decided_too() -> None:
    parts: list[Any] = [
        {"type": "input_text", "text": STATE},
        {"type": "input_json", "data": {"service": "checkout", "customers": 12_000}},
    ]
    with OpenAI() as client:
        said: list[Any] = [{"role": "user", "content": parts}]
        assert_decision(client.decisions.create(model="triage-demo", input=said, questions=DECIDED))


async def test_the_async_client_gets_the_same_answers() -> None:
    with OpenAI() as sync:
        expected = sync.decisions.create(model="triage-demo", input=STATE, questions=DECIDED)
    async with AsyncOpenAI() as client:
        decision = await client.decisions.create(model="triage-demo", input=STATE, questions=DECIDED)
    assert_decision(decision)
    assert expected.answers == decision.answers


def test_questions_in_a_system_message_are_answered_as_a_chat_completion() -> None:
    with OpenAI() as client:
        assert_completion(client.chat.completions.create(model="triage-demo", messages=MESSAGES))


async def test_the_async_client_completes_chats_as_the_sync_one_does() -> None:
    with OpenAI() as sync:
        expected = sync.chat.completions.create(model="triage-demo", messages=MESSAGES)
    async with AsyncOpenAI() as client:
        completion = await client.chat.completions.create(model="triage-demo", messages=MESSAGES)
    assert_completion(completion)
    contents = [json.loads(each.choices[0].message.content or "") for each in (expected, completion)]
    assert contents[0]["answers"] == contents[1]["answers"]


def test_models_are_listed() -> None:
    with OpenAI() as client:
        assert ["triage-demo"] == [model.id for model in client.models.list()]


def test_every_reply_has_a_request_id() -> None:
    with OpenAI() as client:
        reply = client.decisions.with_raw_response.create(model="triage-demo", input=STATE, questions=DECIDED)
    assert reply.request_id


def test_an_unknown_model_is_its_not_found_error() -> None:
    with OpenAI(max_retries=0) as client, pytest.raises(openai.NotFoundError) as caught:
        client.decisions.create(model="gpt-6", input=STATE, questions=DECIDED)
    assert ("model_not_found", "model") == (caught.value.code, caught.value.param)
    assert caught.value.request_id


def test_a_question_that_cannot_be_answered_is_its_bad_request_error_and_names_the_field() -> None:
    with OpenAI(max_retries=0) as client, pytest.raises(openai.BadRequestError) as caught:
        client.decisions.create(model="triage-demo", input=STATE, questions=TOO_MANY)
    assert "questions.0.levels" == caught.value.param


def test_a_question_that_cannot_be_answered_in_a_system_message_is_its_bad_request_error_too() -> None:
    schema = {"questions": [{"id": "severity", "type": "score", "levels": TOO_MANY_LEVELS}]}
    messages = [{"role": "system", "content": json.dumps(schema)}, *MESSAGES[1:]]
    with OpenAI(max_retries=0) as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="triage-demo", messages=messages)
    assert (caught.value.param or "").startswith("messages.0.content")


def test_a_plain_chat_is_refused_where_the_backend_writes_nothing() -> None:
    with OpenAI(max_retries=0) as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="triage-demo", messages=MESSAGES[1:])
    assert "invalid_request_error" == caught.value.type


def test_a_wrong_key_and_a_lost_one_are_its_authentication_error(keyed_server: str) -> None:
    losing = httpx2.Client(event_hooks={"request": [lambda request: request.headers.pop("authorization")]})
    for client in (
        OpenAI(base_url=f"{keyed_server}/v1", api_key="wrong"),
        OpenAI(base_url=f"{keyed_server}/v1", api_key=KEY, http_client=losing),
    ):
        with client, pytest.raises(openai.AuthenticationError) as caught:
            client.decisions.create(model="triage-demo", input=STATE, questions=DECIDED)
        assert "invalid_api_key" == caught.value.code


def test_the_name_in_openais_documentation_works_as_an_alias(keyed_server: str) -> None:
    with OpenAI(base_url=f"{keyed_server}/v1", api_key=KEY) as client:
        decision = client.decisions.create(model=ALIAS, input=STATE, questions=DECIDED)
        assert {"triage-demo", ALIAS} == {model.id for model in client.models.list()}
    assert "triage-demo" == decision.model


async def test_the_servers_key_opens_it_and_the_async_client_raises_the_same_classes(
    keyed_server: str,
) -> None:
    async with AsyncOpenAI(base_url=f"{keyed_server}/v1", api_key=KEY, max_retries=0) as client:
        assert_decision(await client.decisions.create(model="jev-latest", input=STATE, questions=DECIDED))
        with pytest.raises(openai.NotFoundError):
            await client.decisions.create(model="gpt-6", input=STATE, questions=DECIDED)
        with pytest.raises(openai.BadRequestError):
            await client.decisions.create(model="triage-demo", input=STATE, questions=TOO_MANY)
    async with AsyncOpenAI(base_url=f"{keyed_server}/v1", api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
