"""The written texts are honest: enough of them, none twice, and nothing that judges the model trains it."""

from __future__ import annotations

import importlib
import random
import re
from collections import Counter, defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

INCIDENTS = Path(__file__).parents[2] / "examples" / "incident_triage" / "incidents.yaml"
texts: Any = importlib.import_module("texts")
compose: Any = importlib.import_module("compose")

FIRST = "train_first"  # the first attempt's texts, which carry fewer labels


def words(text: str) -> tuple[str, ...]:
    """Return a text's words, numbers masked: a pattern with another number is the same pattern."""
    return tuple(re.sub(r"\d+", "0", word) for word in re.findall(r"[\w']+", text.lower()))


def grams(text: str, size: int) -> set[tuple[str, ...]]:
    """Return a text's runs of words."""
    found = words(text)
    return {found[i : i + size] for i in range(len(found) - size + 1)}


@cache
def written() -> dict[str, list[str]]:
    """Return the texts of each file."""
    return {
        path.stem: [each.text for each in texts.read(path.stem)]
        for path in sorted(texts.CORPUS.glob("*.txt"))
    }


def test_there_are_enough_texts() -> None:
    gate, validation = texts.gate(), texts.validation()
    assert 300 <= sum(each.has_cue and each.is_clear for each in gate)
    assert 60 <= sum(not each.has_cue for each in gate)
    assert 60 <= sum(each.has_cue and not each.is_clear for each in gate)
    assert 200 <= sum(each.has_cue and each.is_clear for each in validation)
    new = sum(len(found) for name, found in written().items() if name.startswith("train_") and name != FIRST)
    assert 1500 <= new
    assert 1500 <= len(written()[FIRST])


@pytest.mark.parametrize("question", ["team", "severity", "urgent"])
def test_the_gate_is_balanced(question: str) -> None:
    clear = [each for each in texts.gate() if each.has_cue and each.is_clear]
    counts = Counter(each.answer(question) for each in clear)
    fair = len(clear) / len(texts.OPTIONS[question])
    assert all(0.75 * fair <= count <= 1.25 * fair for count in counts.values()), counts


def test_no_two_texts_are_alike() -> None:
    """Jaccard similarity of word 5-grams is at most 0.5 for every pair, whatever files they are from."""
    everything = [text for found in written().values() for text in found]
    of_text = [grams(text, 5) for text in everything]
    holders: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, found in enumerate(of_text):
        for gram in found:
            holders[gram].append(index)
    pairs = {pair for indices in holders.values() for pair in combinations(indices, 2)}
    alike = [
        (everything[a], everything[b])
        for a, b in pairs
        if len(of_text[a] & of_text[b]) > 0.5 * len(of_text[a] | of_text[b])
    ]
    assert [] == alike


def test_no_pattern_is_used_more_than_five_times() -> None:
    """A pattern is a run of six words with numbers masked, of which at least three are words."""
    uses = Counter(
        gram
        for found in written().values()
        for text in found
        for gram in grams(text, 6)
        if sum(not word.isdigit() for word in gram) >= 3
    )
    assert [] == [(" ".join(gram), count) for gram, count in uses.items() if count > 5]


def test_no_text_stands_twice() -> None:
    uses = Counter(text.lower().strip() for found in written().values() for text in found)
    assert [] == [(text, count) for text, count in uses.items() if count > 1]


def _judging() -> set[tuple[str, ...]]:
    incidents = yaml.safe_load(INCIDENTS.read_text("utf-8"))
    judging = [*written()["gate"], *written()["gate_nocue"]]
    judging += [part for incident in incidents for part in (incident["title"], incident["text"])]
    return {gram for text in judging for gram in grams(text, 8)}


def test_no_training_text_shares_eight_words_with_what_judges_the_model() -> None:
    judging = _judging()
    shared = [
        (name, text)
        for name, found in written().items()
        if not name.startswith("gate")
        for text in found
        if grams(text, 8) & judging
    ]
    assert [] == shared


def test_no_composed_text_shares_eight_words_with_what_judges_the_model() -> None:
    choose, judging = random.Random(1), _judging()
    assert not any(grams(compose.compose(choose).text, 8) & judging for _ in range(5000))


def test_labels_are_distributions() -> None:
    choose = random.Random(2)
    examples = [*texts.training(), *texts.gate(), *texts.validation()]
    examples += [compose.soften(compose.vary(each, choose), choose) for each in examples]
    examples += [compose.compose(choose) for _ in range(500)]
    for example in examples:
        for name, target in example.targets.items():
            assert len(texts.OPTIONS[name]) == len(target)
            assert pytest.approx(1) == sum(target)
            assert min(target) >= 0
