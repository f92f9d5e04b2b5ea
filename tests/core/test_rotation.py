"""Rotation: each draw lists the options in another order, and all are mapped back before they are pooled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from string import ascii_uppercase
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.answers import Answer
from structured_server.core.plan import Capabilities, ReadOptions
from structured_server.core.policy import ReadPolicy
from structured_server.core.questions import Choice, Noul, Question, Schema, Score
from structured_server.core.reading import GroupJob, read_group
from structured_server.core.reads import Read, ReadRequest, Row
from structured_server.core.stage import answers_of
from tests.core.jobs import LETTERED, job_of
from tests.core.strategies import quick
from tests.core.synthetic import drive
from tests.toy import LABELS, ToyTokenizer

ROTATE = ReadOptions(rotate=True)
PAIRS = ToyTokenizer([*LABELS, *ascii_uppercase, *map("".join, product("ABC", ascii_uppercase))])

Samples = int | Literal["auto"]
Wants = Callable[[list[str]], str]
"""From a question's lines in the prompt to the one that the engine likes best."""


def marked(*names: str) -> Choice:
    """Return a choice whose options can be found in a prompt whatever their labels are."""
    return Choice("Which?", tuple((name, f"mark{index}.") for index, name in enumerate(names)))


def option(index: int) -> Wants:
    """Like an option wherever it stands and whatever its label is."""
    return lambda lines: next(line for line in lines if line.endswith(f"mark{index}."))


def first_listed(lines: list[str]) -> str:
    return lines[0]


def read_by(made: GroupJob, wants: Wants, *, tokenizer: ToyTokenizer = LETTERED) -> Answer:
    """Read one question with an engine that puts 0.9 on the label of the line that it likes."""

    def say(request: ReadRequest) -> Read:
        lines = [line for line in tokenizer.text(request.prompt.ids).splitlines() if line.startswith("- ")]
        label = wants(lines).removeprefix("- ").partition(":")[0]
        row = {i: -2.3 if tokenizer.token_text(i) == label else -9.0 for i in request.label_ids}
        row |= {i: -0.105 for i in request.label_ids if tokenizer.token_text(i) == label}
        return Read((Row(row, None),), len(request.prompt.ids))

    policy = ReadPolicy(samples=max(2, len(made.arrangements)))
    _, reading = drive(read_group(made, policy), lambda batch: [say(r) for r in batch.requests])
    return answers_of(reading)["q"]


def rotated(
    question: Question, samples: Samples = 4, *, tokenizer: ToyTokenizer = LETTERED, cap: int = 128
) -> GroupJob:
    return job_of(
        Schema((("q", question),)),
        "q",
        ROTATE,
        policy=ReadPolicy(samples=samples),
        capabilities=Capabilities((64,), cap, None),
        tokenizer=tokenizer,
    )


own_words = st.lists(st.sampled_from(LABELS), min_size=2, max_size=6, unique=True)
long_names = st.integers(2, 6).map(lambda count: [f"shelf {index}" for index in range(count)])


@quick
@given(own_words | long_names, st.integers(1, 8), st.data())
def test_who_prefers_an_option_wherever_it_stands_is_understood(
    names: list[str], samples: int, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(0, len(names) - 1))
    answer = read_by(rotated(marked(*names), samples), option(wanted))
    assert wanted == answer.option
    assert 1.0 == answer.agreement
    assert answer.distribution.top_probability > 0.99
    assert answer.orders == (min(samples, len(names)) if samples > 1 else 1)
    assert answer.order_spread is None or answer.order_spread < 1e-9


@quick
@given(own_words | long_names)
def test_who_prefers_whatever_stands_first_comes_to_no_answer(names: list[str]) -> None:
    """Over a whole turn every option is first once, so that the preference cancels out."""
    answer = read_by(rotated(marked(*names), len(names)), first_listed)
    assert [1 / len(names)] * len(names) == pytest.approx(answer.distribution.probabilities)
    assert 1 / len(names) == pytest.approx(answer.agreement)
    assert answer.order_spread is not None
    assert answer.order_spread > 0.98


@pytest.mark.parametrize("wanted", [0, 1])
def test_yes_and_no_are_listed_in_both_orders(wanted: int) -> None:
    question = Noul("Is it?", true="mark0.", false="mark1.")
    made = rotated(question)
    answer = read_by(made, option(wanted))
    assert (wanted, 2, 4) == (answer.option, answer.orders, answer.draws)
    prompts = [made.request(draw).prompt.ids for draw in range(4)]
    assert prompts[0] == prompts[2] != prompts[1] == prompts[3]


def test_levels_stay_in_their_order() -> None:
    made = rotated(Score("How bad?", ("none", "low", "high")))
    assert 1 == len({arrangement.prompt.ids for arrangement in made.arrangements})
    assert (1, None) == (lambda a: (a.orders, a.order_spread))(read_by(made, first_listed))


@pytest.mark.parametrize("wanted", [0, 44, 69])
def test_a_wide_choice_is_turned_and_mapped_back_too(wanted: int) -> None:
    names = [f"shelf {index}" for index in range(70)]
    made = rotated(marked(*names), 3, tokenizer=PAIRS, cap=50)
    assert 3 == len(made.chunks)
    answer = read_by(made, option(wanted), tokenizer=PAIRS)
    assert (wanted, 1.0, 3) == (answer.option, answer.agreement, answer.orders)


def test_without_rotation_all_draws_have_one_prompt() -> None:
    made = job_of(Schema((("q", marked("x", "y")),)), "q", ReadOptions())
    assert 1 == len(made.arrangements)
    assert made.options(0) == made.options(3) == [list(made.group.canvas.slots[0].options)]


@pytest.mark.parametrize(("samples", "orders"), [("auto", 4), (1, 1), (2, 2), (7, 7)])
def test_there_is_an_order_for_each_draw_that_may_be_made(samples: Samples, orders: int) -> None:
    assert orders == len(rotated(marked("x", "y"), samples).arrangements)


def test_rotation_leaves_the_first_draw_and_all_noise_as_they_were() -> None:
    asked = Schema((("q", marked("shelf a", "shelf b", "shelf c")),))
    plain, turned = (job_of(asked, "q", read) for read in (ReadOptions(), ROTATE))
    assert plain.request(0) == turned.request(0)
    for draw in range(4):
        one, other = plain.request(draw), turned.request(draw)
        assert one == replace(other, prompt=one.prompt)
