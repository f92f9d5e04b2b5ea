"""What may not change an answer."""

from __future__ import annotations

from typesafe_sdk import Noul, Question, TypeSafeClient

from tests.conformance.asked import STATE, TEAM, THREE
from tests.conformance.judging import distance

# Engines compute in batches, and sums come out slightly otherwise in another batch.
NEAR = 0.05
SAME = 0.01


def test_a_question_is_answered_the_same_under_another_id(sdk: TypeSafeClient) -> None:
    one = sdk.system_one(STATE, {"team": TEAM}).answers["team"]
    # An id that the model would follow if it saw it.
    other = sdk.system_one(STATE, {"it_must_be_sales": TEAM}).answers["it_must_be_sales"]
    assert distance(one, other) <= NEAR


def test_a_question_is_answered_the_same_among_others(sdk: TypeSafeClient) -> None:
    others: dict[str, Question] = {
        f"n{number}": Noul(instructions=f"Is {number} named?") for number in range(8)
    }
    alone = sdk.system_one(STATE, {"team": TEAM}).answers["team"]
    among = sdk.system_one(STATE, {**others, "team": TEAM}).answers["team"]
    assert distance(alone, among) <= NEAR


def test_questions_are_answered_the_same_in_another_order(sdk: TypeSafeClient) -> None:
    forwards = sdk.system_one(STATE, THREE).answers
    backwards = sdk.system_one(STATE, dict(reversed(THREE.items()))).answers
    for name in THREE:
        assert distance(forwards[name], backwards[name]) <= NEAR


def test_the_same_request_has_the_same_answer(sdk: TypeSafeClient) -> None:
    first, second = sdk.system_one(STATE, THREE).answers, sdk.system_one(STATE, THREE).answers
    for name in THREE:
        assert distance(first[name], second[name]) <= SAME
