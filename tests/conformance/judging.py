"""What must hold of any answer, whichever model gave it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from typesafe_sdk import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer

# Probabilities are sent unrounded; clients check sums to this.
EXACT = 1e-6


def judge_noul(answer: Answer) -> None:
    """Assert that a noul's answer is a probability."""
    assert isinstance(answer, NoulAnswer)
    assert 0 <= answer.noul <= 1


def judge_choice(answer: Answer, options: Sequence[str]) -> None:
    """Assert that a choice's answer is a distribution over exactly its options, and names the likeliest."""
    assert isinstance(answer, ChoiceAnswer)
    assert list(options) == list(answer.probabilities)
    _judge_distribution(answer.probabilities)
    assert answer.probabilities[answer.choice] == max(answer.probabilities.values())
    assert answer.confidence == pytest.approx(choice_confidence(answer.probabilities), abs=EXACT)


def judge_score(answer: Answer, levels: Sequence[Any]) -> None:
    """Assert that a score's answer is the expectation over its levels, which it repeats."""
    assert isinstance(answer, ScoreAnswer)
    assert list(range(len(levels))) == list(answer.legend)
    for level, shown in zip(levels, answer.legend.values(), strict=True):
        # A structured level may be shown as the text that the model reads.
        assert shown == level or (not isinstance(level, str) and json.loads(str(shown)) == level)
    assert list(range(len(levels))) == list(answer.probabilities)
    _judge_distribution(answer.probabilities)
    expected = sum(level * probability for level, probability in answer.probabilities.items())
    assert answer.score == pytest.approx(expected, abs=EXACT)
    assert answer.confidence == pytest.approx(score_confidence(answer.probabilities), abs=EXACT)


def choice_confidence(probabilities: Mapping[str, float]) -> float:
    """Compute (max - 1/n) / (1 - 1/n), or 1 of a single option."""
    even = 1 / len(probabilities)
    return 1.0 if even == 1 else (max(probabilities.values()) - even) / (1 - even)


def score_confidence(probabilities: Mapping[int, float]) -> float:
    """Compute 1 - E|level - mode| / D with D the mean distance from the middle, no less than 0."""
    count = len(probabilities)
    if count == 1:
        return 1.0
    mode = max(probabilities, key=lambda level: probabilities[level])
    spread = sum(probability * abs(level - mode) for level, probability in probabilities.items())
    widest = sum(abs(level - (count - 1) / 2) for level in probabilities) / count
    return max(0.0, 1 - spread / widest)


def distance(one: Answer, other: Answer) -> float:
    """Return by how much two answers to the same question differ, at most."""
    first, second = _numbers(one), _numbers(other)
    assert first.keys() == second.keys()
    return max(abs(first[name] - second[name]) for name in first)


def _judge_distribution(probabilities: Mapping[Any, float]) -> None:
    assert all(0 <= probability <= 1 for probability in probabilities.values())
    assert sum(probabilities.values()) == pytest.approx(1, abs=EXACT)


def _numbers(answer: Answer) -> dict[str, float]:
    if isinstance(answer, NoulAnswer):
        return {"noul": answer.noul}
    assert isinstance(answer, ChoiceAnswer | ScoreAnswer)
    return {str(name): probability for name, probability in answer.probabilities.items()}
