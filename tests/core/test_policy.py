"""The policy: numbers by type of question, and what no policy may say."""

from __future__ import annotations

import math

import pytest

from structured_server.core.policy import MAX_DRAWS, ByType, ReadPolicy
from tests.core.triage import BAD, TEAM, URGENT


@pytest.mark.parametrize("samples", [0, -1, MAX_DRAWS + 1])
def test_a_policy_refuses_a_number_of_samples_that_has_no_statistics(samples: int) -> None:
    with pytest.raises(ValueError) as refused:
        ReadPolicy(samples=samples)
    assert f"samples must be auto or from 1 to 32, got {samples}" == str(refused.value)


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_a_policy_refuses_a_threshold_that_is_no_entropy(threshold: float) -> None:
    with pytest.raises(ValueError, match="must be 0 nats or more"):
        ReadPolicy(entropy_thresholds=ByType.same(threshold))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_policy_refuses_a_temperature_that_divides_by_nothing(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperatures must be above 0"):
        ReadPolicy(temperatures=ByType.same(temperature))


@pytest.mark.parametrize("kind", ["noul", "choice", "score"])
def test_one_bad_number_of_three_is_refused(kind: str) -> None:
    numbers = {"noul": 1.0, "choice": 1.0, "score": 1.0}
    with pytest.raises(ValueError, match="entropy thresholds"):
        ReadPolicy(entropy_thresholds=ByType(**{**numbers, kind: -0.1}))
    with pytest.raises(ValueError, match="entropy thresholds"):
        ReadPolicy(entropy_thresholds=ByType(**{**numbers, kind: math.nan}))
    with pytest.raises(ValueError, match="temperatures"):
        ReadPolicy(temperatures=ByType(**{**numbers, kind: math.nan}))


def test_each_type_of_question_has_its_own_number() -> None:
    numbers = ByType(noul=0.1, choice=0.2, score=0.05)
    assert [0.1, 0.2, 0.05] == [numbers.of(question) for question in (URGENT, TEAM, BAD)]
    assert 0.05 == numbers.smallest
    assert ByType(3, 3, 3) == ByType.same(3)


@pytest.mark.parametrize("extra", [-1, MAX_DRAWS])
def test_a_policy_refuses_more_further_draws_than_there_are_statistics_for(extra: int) -> None:
    with pytest.raises(ValueError) as refused:
        ReadPolicy(extra_draws=extra)
    assert f"extra draws must be from 0 to 31, got {extra}" == str(refused.value)


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (ReadPolicy(), 4),
        (ReadPolicy(extra_draws=0), 1),
        (ReadPolicy(extra_draws=MAX_DRAWS - 1), MAX_DRAWS),
        (ReadPolicy(samples=2, extra_draws=7), 2),
    ],
)
def test_the_most_draws_are_the_first_and_the_further_ones_or_what_is_said(
    policy: ReadPolicy, most: int
) -> None:
    assert most == policy.most_draws
