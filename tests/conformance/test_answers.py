"""Answers as the SDK gives them to its caller."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel
from typesafe_sdk import (
    NoulAnswer,
    Question,
    ScoreAnswer,
    SystemOneResponse,
    TypeSafeClient,
    TypeSafeUnprocessableEntityError,
)

from tests.conformance.asked import ANGER, GREETING, STATE, TEAM, THREE, URGENT
from tests.conformance.faults import Front
from tests.conformance.judging import judge_choice, judge_noul, judge_score
from tests.conformance.target import Target

VARIED: tuple[Any, ...] = (
    STATE,
    "fine",
    "Opening the settings page makes the app quit.",
    {"count": 1},
    "What would fifty seats cost us?",
    ["a", "b"],
)


class Lifted(SystemOneResponse):
    """The SDK's own way to name an answer."""

    urgent: NoulAnswer


class Bare(BaseModel):
    """A model of the caller's that knows nothing of the SDK."""

    model: str
    answers: dict[str, Any]


def test_a_noul_is_a_probability(sdk: TypeSafeClient) -> None:
    judge_noul(sdk.system_one(STATE, {"urgent": URGENT}).nouls["urgent"])


def test_a_choice_is_a_distribution_over_its_options(sdk: TypeSafeClient) -> None:
    judge_choice(sdk.system_one(STATE, {"team": TEAM}).choices["team"], list(TEAM.criteria))


def test_a_score_is_an_expectation_over_levels_counted_from_0(sdk: TypeSafeClient) -> None:
    judge_score(sdk.system_one(STATE, {"anger": ANGER}).scores["anger"], ANGER.criteria)


def test_the_three_types_are_answered_together_with_model_and_token_counts(sdk: TypeSafeClient) -> None:
    response = sdk.system_one(STATE, THREE)
    kinds = {name: answer.type for name, answer in response.answers.items()}
    assert {"urgent": "noul", "team": "choice", "anger": "score"} == kinds
    assert response.model
    for count in (response.usage.input_tokens, response.usage.output_tokens):
        assert count is not None
        assert count >= 0


@pytest.mark.parametrize("state", VARIED, ids=repr)
def test_confidence_follows_its_formulas_whatever_the_state(sdk: TypeSafeClient, state: Any) -> None:
    response = sdk.system_one(state, THREE)
    judge_choice(response.choices["team"], list(TEAM.criteria))
    judge_score(response.scores["anger"], ANGER.criteria)


def test_the_models_listed_have_dates_and_can_be_asked(sdk: TypeSafeClient) -> None:
    models = sdk.models.list().models
    assert models
    for model in models:
        assert date.fromisoformat(model.release_date).isoformat() == model.release_date
        judge_noul(sdk.system_one("hi", GREETING, model=model.name).answers["greeting"])


def test_the_name_that_the_sdks_send_by_default_is_known(sdk: TypeSafeClient) -> None:
    judge_noul(sdk.system_one("hi", GREETING, model="jev-latest").answers["greeting"])


def test_questions_may_be_plain_dictionaries(sdk: TypeSafeClient) -> None:
    questions: dict[str, Question] = {
        "noul": {"type": "noul", "instructions": "Urgent?"},
        "choice": {"type": "choice", "criteria": {"a": None, "b": "the second"}},
        "score": {"type": "score", "instructions": "How much?", "criteria": ["little", "much"]},
    }
    answers = sdk.system_one(STATE, questions).answers
    assert set(questions) == set(answers)
    judge_choice(answers["choice"], ["a", "b"])
    judge_score(answers["score"], ["little", "much"])


def test_fields_that_nobody_knows_are_ignored(sdk: TypeSafeClient) -> None:
    unknown: dict[str, Any] = {"x_trace": "abc", "user": "u1", "session_id": "s", "provider": {"order": []}}
    judge_noul(sdk.system_one(STATE, {"urgent": URGENT}, extra_body=unknown).answers["urgent"])


def test_an_answer_can_be_lifted_to_a_field_of_the_response(sdk: TypeSafeClient) -> None:
    response = sdk.system_one(STATE, THREE, response_model=Lifted)
    assert response.urgent == response.answers["urgent"]


def test_the_response_can_be_read_into_a_model_of_the_callers(sdk: TypeSafeClient) -> None:
    assert set(THREE) == set(sdk.system_one(STATE, THREE, response_model=Bare).answers)


def test_a_response_has_a_request_id(sdk: TypeSafeClient) -> None:
    response = sdk.system_one(STATE, {"urgent": URGENT})
    assert response.request_id
    assert response.request_id == response.raw_http_response.headers["x-typesafe-request-id"]


def test_an_error_has_a_request_id(sdk: TypeSafeClient) -> None:
    unknown: Any = {"type": "nope"}
    with pytest.raises(TypeSafeUnprocessableEntityError) as refused:
        sdk.system_one(STATE, {"urgent": unknown})
    assert refused.value.request_id


def test_a_body_may_be_compressed_with_zstd(target: Target, front: Front) -> None:
    with target.sdk(base_url=front.url, compression="zstd") as sdk:
        answers = sdk.system_one(STATE * 40, THREE).answers
    assert ["zstd"] == [headers.get("content-encoding") for headers in front.seen]
    assert set(THREE) == set(answers)


async def test_the_asynchronous_client_lists_models_and_asks_twenty_times_at_once(target: Target) -> None:
    async with target.async_sdk() as sdk:
        assert (await sdk.models.list()).models
        responses = await asyncio.gather(*(sdk.system_one(f"{STATE} #{i}", THREE) for i in range(20)))
    for response in responses:
        assert set(THREE) == set(response.answers)
        assert isinstance(response.answers["anger"], ScoreAnswer)
