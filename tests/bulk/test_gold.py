"""Figures beside right answers, held against other people's formulas."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from structured_server.bulk.gold import Gold, wilson
from structured_server.bulk.tally import Tally

CHOICE = {"type": "choice", "criteria": {"a": None, "b": None}}


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_wilsons_as_scipy_has_it(case: tuple[int, int]) -> None:
    right, n = case
    other = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert (other.low, other.high) == pytest.approx(wilson(right, n), abs=1e-9)


def test_reliability_and_coverage_are_those_of_all_rows_at_once() -> None:
    draw = random.Random(1)
    rows = [(draw.random(), draw.random()) for _ in range(2000)]
    cases = [(0.5 + p / 2, "a" if hit < p else "b") for p, hit in rows]
    gold = Gold(CHOICE)
    for p, right in cases:
        gold.add("a", p, right)
    gold.add(None, None, "a")
    found = gold.summary()
    assert (2000, 1) == (found["n"], found["undecided"])
    for line in found["reliability"]:
        part = [(p, right) for p, right in cases if line["from"] <= p < line["to"]]
        assert len(part) == line["n"]
        assert sum(p for p, _ in part) / len(part) == pytest.approx(line["mean_p"])
        assert sum(right == "a" for _, right in part) / len(part) == pytest.approx(line["accuracy"])
    for line in found["coverage"]:
        part = [(p, right) for p, right in cases if p >= line["min_p"]]
        assert len(part) == line["n"]
        assert len(part) / 2001 == pytest.approx(line["coverage"])
        assert sum(right != "a" for _, right in part) / len(part) == pytest.approx(line["risk"])


@pytest.mark.parametrize(
    ("question", "answer", "gold", "counted"),
    [
        ({"type": "noul"}, "yes", "True", "right"),
        ({"type": "binary"}, "no", "0", "right"),
        ({"type": "noul"}, "no", "yes", "wrong"),
        ({"type": "noul"}, "no", "perhaps", "unknown"),
        (CHOICE, "a", " a ", "right"),
        (CHOICE, "a", "c", "unknown"),
        (CHOICE, "a", "", "unlabelled"),
        (CHOICE, None, "a", "undecided"),
        ({"type": "score", "criteria": ["low", "high"]}, "high", "1", "right"),
        ({"type": "score", "criteria": ["low", "high"]}, "high", "low", "wrong"),
        ({"type": "score", "criteria": ["low", "high"]}, "high", "2", "unknown"),
        ({"type": "choice", "criteria": "not a map"}, "a", "a", "unknown"),
    ],
)
def test_right_answers_are_read_as_people_write_them(
    question: dict[str, object], answer: str | None, gold: str, counted: str
) -> None:
    counter = Gold(question)
    counter.add(answer, None if answer is None else 0.9, gold)
    found = counter.summary()
    figures = {name: found[name] for name in ("right", "undecided", "unknown", "unlabelled")}
    figures["wrong"] = found["n"] - found["right"]
    assert {name: int(name == counted) for name in figures} == figures


def test_a_no_is_as_probable_as_the_yes_is_not() -> None:
    tally = Tally({"urgent": {"type": "noul"}}, "", {"urgent": "right"})
    row = {"urgent.entropy": "0.3", "_status": "decided", "_error": ""}
    tally.add({**row, "urgent": "no", "urgent.p": "0.1", "urgent.status": "decided", "right": "no"})
    tally.add({**row, "urgent": "", "urgent.p": "", "urgent.status": "skipped", "right": "yes"})
    found = tally.summary()["questions"]["urgent"]["gold"]
    assert (1, 1, 0) == (found["n"], found["right"], found["undecided"])
    assert [(0.9, 0.9)] == [(line["from"], line["mean_p"]) for line in found["reliability"]]
