"""`langchain-typesafe`, sync and async, as installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain_core.exceptions import ModelAuthenticationError, ModelInvalidRequestError, ModelNotFoundError
from langchain_core.messages import HumanMessage
from langchain_typesafe import Choice, ClassifierRequest, ClassifierResponse, Noul, Score, TypeSafeClassifier
from langchain_typesafe.client import (
    TypeSafeAuthenticationError,
    TypeSafeNotFoundError,
    TypeSafeUnprocessableEntityError,
)

from tests.clients.conftest import KEY
from tests.clients.ticket import (
    LEVELS,
    ODD_OPTIONS,
    STATE,
    TOO_MANY_LEVELS,
    assert_choice,
    assert_score,
    choice_confidence,
)

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")

REQUEST: ClassifierRequest = {
    "state": STATE,
    "questions": {
        "wake someone?": Noul(instructions="Should we wake an on-call engineer?"),
        "odd": Choice(instructions="Which word fits?", criteria=dict.fromkeys(ODD_OPTIONS)),
        "severity": Score(instructions="How severe is customer impact?", criteria=[*LEVELS]),
    },
}
UNANSWERABLE: ClassifierRequest = {
    "state": STATE,
    "questions": {"severity": Score(instructions="How severe?", criteria=[*TOO_MANY_LEVELS])},
}


def assert_response(response: ClassifierResponse) -> None:
    """Hold a response to `REQUEST` against all that is promised of it."""
    assert list(REQUEST["questions"]) == list(response.answers)
    assert 0 <= response.nouls["wake someone?"].noul <= 1
    odd, severity = response.choices["odd"], response.scores["severity"]
    assert_choice(odd.choice, odd.probabilities, ODD_OPTIONS)
    assert pytest.approx(choice_confidence(odd.probabilities)) == odd.confidence
    assert_score(severity.score, severity.probabilities)
    assert dict(enumerate(LEVELS)) == severity.legend
    assert ("triage-demo", 3) == (response.model, response.usage.output_tokens)
    assert response.request_id


@pytest.fixture(autouse=True)
def pointed_at_the_server(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    """Say by environment variables alone where the server is, as docs/clients.md has it."""
    monkeypatch.setenv("TYPESAFE_BASE_URL", server)
    monkeypatch.setenv("TYPESAFE_API_KEY", "any")


@asynccontextmanager
async def classifying(**settings: Any) -> AsyncIterator[TypeSafeClassifier]:
    """Give a classifier, and close its connections, which it leaves to its caller."""
    classifier = TypeSafeClassifier(**settings)
    assert classifier.client is not None
    assert classifier.async_client is not None
    with classifier.client:
        async with classifier.async_client:
            yield classifier


async def test_it_classifies_alike_sync_and_async() -> None:
    async with classifying() as classifier:
        response = classifier.invoke(REQUEST)
        assert_response(response)
        assert response.answers == (await classifier.ainvoke(REQUEST)).answers


async def test_it_classifies_chat_messages() -> None:
    said: ClassifierRequest = {**REQUEST, "state": {"conversation": [HumanMessage(STATE)]}}
    async with classifying() as classifier:
        assert_response(classifier.invoke(said))


async def test_a_batch_answers_each_request_in_its_place() -> None:
    other: ClassifierRequest = {**REQUEST, "state": "One customer asks how to export an invoice as PDF."}
    async with classifying() as classifier:
        one, two = classifier.batch([REQUEST, other])
        assert [classifier.invoke(each).answers for each in (REQUEST, other)] == [one.answers, two.answers]
    assert one.answers != two.answers


async def test_an_unknown_model_is_its_not_found_error() -> None:
    async with classifying(model="gpt-6") as classifier:
        with pytest.raises(TypeSafeNotFoundError) as caught:
            classifier.invoke(REQUEST)
    assert isinstance(caught.value, ModelNotFoundError)


async def test_a_question_that_cannot_be_answered_is_its_unprocessable_error() -> None:
    async with classifying() as classifier:
        with pytest.raises(TypeSafeUnprocessableEntityError) as caught:
            await classifier.ainvoke(UNANSWERABLE)
    assert isinstance(caught.value, ModelInvalidRequestError)


async def test_a_wrong_key_is_its_authentication_error_and_the_right_one_opens(keyed_server: str) -> None:
    async with classifying(base_url=keyed_server, api_key="wrong") as classifier:
        with pytest.raises(TypeSafeAuthenticationError) as caught:
            classifier.invoke(REQUEST)
    assert isinstance(caught.value, ModelAuthenticationError)
    async with classifying(base_url=keyed_server, api_key=KEY) as classifier:
        assert_response(classifier.invoke(REQUEST))
