"""The judge of answers: it lets through what is right, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from benchmarks.reliability.asked import many_kinds
from benchmarks.reliability.load import Body, Reply, quantile
from benchmarks.reliability.truth import SERVED, Truth, answer_to
from benchmarks.reliability.verdicts import at_least, at_most, none_of
from benchmarks.reliability.vitals import forget_peak, peak_memory, vitals_of

ASKED = many_kinds(1, 1) | {"read": {"samples": "auto"}}


@pytest.fixture(scope="module")
def truth() -> Truth:
    """Load the tokenizer once."""
    return Truth()


def replied(said: Any, asked: Body = ASKED, status: int | None = 200) -> Reply:
    return Reply(1, asked, status, orjson.dumps(said), 0.0, 0.1)


@pytest.mark.parametrize("driver", range(len(SERVED)))
async def test_right_answers_are_right_at_every_width_that_is_served(truth: Truth, driver: int) -> None:
    said = await answer_to(ASKED, truth.drivers[driver])
    assert await truth.problem_of(replied(said)) is None


async def test_an_answer_on_one_draw_is_right_only_where_it_says_so(truth: Truth) -> None:
    said = await answer_to(ASKED | {"read": {"samples": 1}}, truth.drivers[0])
    assert "wrong: other numbers" == await truth.problem_of(replied(said))
    told = said | {"warnings": [{"code": "extra_reads_skipped", "message": ""}]}
    assert await truth.problem_of(replied(told)) is None


def _another_number(said: dict[str, Any]) -> None:
    answer = next(iter(said["answers"].values()))
    answer["top_probability"] += 1e-12


def _another_request(said: dict[str, Any]) -> None:
    said["metadata"] = {"number": "2"}


def _another_width(said: dict[str, Any]) -> None:
    said["reading"]["canvas_width"] = 80


@pytest.mark.parametrize("change", [_another_number, _another_request, _another_width])
async def test_what_is_not_right_is_wrong(truth: Truth, change: Callable[[dict[str, Any]], None]) -> None:
    said = await answer_to(ASKED, truth.drivers[0])
    change(said)
    problem = await truth.problem_of(replied(said))
    assert problem is not None
    assert problem.startswith("wrong")


@pytest.mark.parametrize(
    ("status", "said", "problem"),
    [
        (503, {"error": {"code": "overloaded"}}, None),
        (502, {"error": {"code": "engine_error"}}, None),
        (500, {"error": {"code": "internal"}}, "untyped: 500 internal"),
        (502, "<html>", "untyped: 502 untyped"),
        (None, "", "lost: "),
    ],
)
async def test_typed_errors_are_all_that_may_come_instead(
    truth: Truth, status: int | None, said: Any, problem: str | None
) -> None:
    assert problem == await truth.problem_of(replied(said, status=status))


def test_what_is_no_number_holds_no_limit() -> None:
    nothing = quantile([], 0.99)
    assert not at_most("", nothing, 1.0).holds
    assert not at_least("", nothing, 1.0).holds
    assert (True, False) == (none_of("", 0).holds, none_of("", 1).holds)


def test_a_quantile_is_one_of_the_values() -> None:
    assert [1, 2, 3] == [quantile([3, 1, 2], share) for share in (0.0, 0.5, 1.0)]


def test_vital_signs_see_descriptors_and_memory_come_and_go() -> None:
    pid = os.getpid()
    forget_peak(pid)
    before = vitals_of(pid)
    held = [os.pipe() for _ in range(4)]
    ballast = b"x" * 2**26
    during = vitals_of(pid)
    for pipe in held:
        os.close(pipe[0])
        os.close(pipe[1])
    assert before.descriptors + 8 == during.descriptors
    assert during.memory - before.memory > len(ballast) / 2
    assert peak_memory(pid) >= during.memory
    assert replace(before, at=0, memory=0) == replace(vitals_of(pid), at=0, memory=0)
