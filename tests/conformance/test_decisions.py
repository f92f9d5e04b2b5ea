"""OpenAI's decisions, through its own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.decision import AnswerAnswerResourceChoice, AnswerAnswerResourceScore
from openai.types.decision_create_params import Question

from tests.conformance.asked import STATE
from tests.conformance.judging import EXACT, choice_confidence, score_confidence
from tests.conformance.target import MODEL, TIMEOUT, Target

QUESTIONS: list[Question] = [
    {"type": "predicate", "name": "urgent", "instructions": "This needs attention at once."},
    {
        "type": "choice",
        "name": "team",
        "instructions": "Whose is it?",
        "choices": [{"value": "billing", "description": "refunds"}, {"value": "technical"}, {"value": True}],
    },
    {
        "type": "score",
        "name": "anger",
        "instructions": "How angry?",
        "levels": [{"label": "calm"}, {"label": "irritated", "description": "d"}, {"label": "furious"}],
    },
    {"type": "predicate", "instructions": "Money is mentioned, and this has no name."},
]
ITEMS: list[Any] = [
    {"role": "system", "content": "You sort complaints."},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": STATE}, {"type": "input_json", "data": {"plan": "pro"}}],
    },
    {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "2 charges"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "I see."}]},
]
ONE_CHOICE: list[Question] = [{"type": "choice", "instructions": "x", "choices": [{"value": "one"}]}]


def connect(target: Target, **options: Any) -> openai.OpenAI:
    """Make OpenAI's client."""
    known: dict[str, Any] = {"api_key": target.key_sent, "max_retries": 0, "timeout": TIMEOUT}
    return openai.OpenAI(base_url=f"{target.url}/v1", **(known | options))


@pytest.fixture
def client(target: Target) -> Iterator[openai.OpenAI]:
    """Talk to the server through OpenAI's SDK."""
    with connect(target) as client:
        yield client


def test_answers_come_in_order_with_their_names(client: openai.OpenAI) -> None:
    answers = client.decisions.create(model=MODEL, input=STATE, questions=QUESTIONS).answers
    assert ["predicate", "choice", "score", "predicate"] == [answer.type for answer in answers]
    assert ["urgent", "team", "anger", None] == [answer.name for answer in answers]


def test_a_choice_keeps_the_types_of_its_values(client: openai.OpenAI) -> None:
    answer = client.decisions.create(model=MODEL, input=STATE, questions=QUESTIONS[1:2]).answers[0]
    assert isinstance(answer, AnswerAnswerResourceChoice)
    probabilities = {repr(each.value): each.probability for each in answer.probabilities}
    assert ["'billing'", "'technical'", "True"] == list(probabilities)
    assert sum(probabilities.values()) == pytest.approx(1, abs=EXACT)
    assert probabilities[repr(answer.choice)] == max(probabilities.values())
    assert answer.confidence == pytest.approx(choice_confidence(probabilities), abs=EXACT)


def test_a_score_is_the_expectation_over_its_labelled_levels(client: openai.OpenAI) -> None:
    answer = client.decisions.create(model=MODEL, input=STATE, questions=QUESTIONS[2:3]).answers[0]
    assert isinstance(answer, AnswerAnswerResourceScore)
    levels = [(each.value, each.label) for each in answer.probabilities]
    assert [(0, "calm"), (1, "irritated"), (2, "furious")] == levels
    probabilities = {each.value: each.probability for each in answer.probabilities}
    expected = sum(level * probability for level, probability in probabilities.items())
    assert answer.score == pytest.approx(expected, abs=EXACT)
    assert answer.confidence == pytest.approx(score_confidence(probabilities), abs=EXACT)


def test_tokens_are_counted_with_their_details(client: openai.OpenAI) -> None:
    usage = client.decisions.create(model=MODEL, input=STATE, questions=QUESTIONS).usage
    assert usage.input_tokens + usage.output_tokens == usage.total_tokens
    assert usage.input_tokens_details.cached_tokens >= 0
    assert usage.output_tokens_details.reasoning_tokens >= 0


def test_the_input_may_be_messages_calls_and_their_outputs(client: openai.OpenAI) -> None:
    answers = client.decisions.create(model=MODEL, input=ITEMS, questions=QUESTIONS[:1]).answers
    assert ["predicate"] == [answer.type for answer in answers]


def test_what_is_wrong_with_a_request_comes_in_openais_envelope(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        client.decisions.create(model=MODEL, input="x", questions=ONE_CHOICE)
    assert raised.value.status_code in (400, 422)
    _assert_envelope(raised.value)


def test_an_unknown_model_is_not_found_in_openais_envelope(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.decisions.create(model="no-such-model", input="x", questions=QUESTIONS[:1])
    _assert_envelope(raised.value)


def test_a_wrong_key_is_refused_in_openais_envelope(keyed_target: Target) -> None:
    with (
        connect(keyed_target, api_key="sk-wrong") as client,
        pytest.raises(openai.AuthenticationError) as raised,
    ):
        client.decisions.create(model=MODEL, input="x", questions=QUESTIONS[:1])
    _assert_envelope(raised.value)


def _assert_envelope(error: openai.APIStatusError) -> None:
    # The SDK hands out what stands under "error".
    assert isinstance(error.body, dict)
    assert {"message", "type", "param", "code"} == set(error.body)
    assert error.request_id
