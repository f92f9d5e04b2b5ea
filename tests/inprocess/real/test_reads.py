"""Reads in process give the oracle's numbers, whatever is read at the same time or was read before."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from tests.engine.server import SLIDING_WINDOW, Oracle
from tests.inprocess.real.hosted import Answer, Asked, Hosted, asked, vocabulary_size

TOLERANCE = 1e-4
LENGTHS = [5, 100, SLIDING_WINDOW - 1, SLIDING_WINDOW, SLIDING_WINDOW + 1, 300]


def judge(oracle: Oracle, batch: Sequence[Asked], answers: Sequence[Answer]) -> None:
    """Compare answers with the oracle's, one by one."""
    for each, answer in zip(batch, answers, strict=True):
        expected = oracle.read(each.prompt, each.canvas, each.positions, each.ids)
        for row, own in zip(expected, answer.logprobs, strict=True):
            assert own == pytest.approx(row, abs=TOLERANCE)
        assert oracle.argmax(each.prompt, each.canvas, each.positions) == answer.tops
        assert len(each.prompt) == answer.prompt_tokens


@pytest.mark.parametrize("width", [16, 32, 48, 64])
@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: f"prompt {length}")
def test_draws_agree_with_the_oracle_on_both_sides_of_the_sliding_window(
    module: Hosted, oracle: Oracle, length: int, width: int
) -> None:
    """The draws are one batch, behind a prompt that is encoded once."""
    draws = [asked(length, width, seed) for seed in range(3)]
    (answers,), batches = module.read(draws)
    judge(oracle, draws, answers)
    assert [3] == batches
    assert [length, length] == [answer.cached_tokens for answer in answers[1:]]


@pytest.fixture(scope="module")
def module(process: Hosted) -> Hosted:
    """Host one backend for the tests above: what was read before must not matter."""
    process.ready()
    return process


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("past", [0, 1])
def test_the_window_begins_to_slide_where_prompt_and_canvas_pass_it(
    ready: Hosted, oracle: Oracle, past: int, width: int
) -> None:
    """One token past it, the canvas's last position no longer sees the prompt's first."""
    every = asked(SLIDING_WINDOW - width + past, width, count=width)
    ((answer,),), _ = ready.read([every])
    judge(oracle, [every], [answer])


def test_a_prompt_that_comes_again_is_not_encoded_again_and_gives_the_same_bits(
    ready: Hosted, oracle: Oracle
) -> None:
    """The reads between use the same keys and values, one of them three times at once."""
    again = asked(200)
    ((first,),), _ = ready.read([again])
    between = [asked(200, seed=seed) for seed in (1, 2, 3)]
    (others,), _ = ready.read(between)
    ((second,),), _ = ready.read([again])
    assert (0, 200, 200) == (first.cached_tokens, others[0].cached_tokens, second.cached_tokens)
    assert first.logprobs == second.logprobs
    judge(oracle, [again, *between], [first, *others])


def test_mixed_prompts_widths_and_slots_come_back_in_order(ready: Hosted, oracle: Oracle) -> None:
    batch = [
        asked(40, 16, 1),
        asked(200, 16, 2, count=5),
        asked(40, 32, 3),
        asked(40, 16, 4, count=1),
        asked(200, 16, 5),
    ]
    (answers,), batches = ready.read(batch)
    judge(oracle, batch, answers)
    assert [2, 2, 1] == batches
    assert [0, 0, 40, 40, 200] == [answer.cached_tokens for answer in answers]


def test_concurrent_reads_are_taken_together_while_the_model_is_busy(hosted: Hosted, oracle: Oracle) -> None:
    hosted.ready(slow=0.2)
    batches = [[asked(150, 16, seed)] for seed in range(5)] + [[asked(60, 48, seed) for seed in (5, 6)]]
    answers, sizes = hosted.read(*batches)
    for batch, answer in zip(batches, answers, strict=True):
        judge(oracle, batch, answer)
    assert 7 == sum(sizes)
    assert len(sizes) <= 3, "all that wait behind the first turn go in two: one a prompt"


def test_many_slots_and_label_ids_are_read_at_once(ready: Hosted, oracle: Oracle) -> None:
    """More slots than have logits at one time, and a choice as wide as the vocabulary."""
    every = tuple(range(vocabulary_size()))
    draws = [
        Asked(asked(30).prompt, asked(width=64, seed=seed).canvas, tuple(range(64)), every) for seed in (0, 1)
    ]
    (answers,), _ = ready.read(draws)
    judge(oracle, draws, answers)
    for answer in answers:
        for row in answer.logprobs:
            assert 1 == pytest.approx(math.fsum(map(math.exp, row)), abs=1e-5)


def test_label_ids_that_differ_between_draws_are_each_answered(ready: Hosted, oracle: Oracle) -> None:
    draws = [
        Asked(asked().prompt, asked(seed=seed).canvas, (seed + 2,), tuple(range(800 + seed, 900, 7)))
        for seed in range(3)
    ]
    (answers,), _ = ready.read(draws)
    judge(oracle, draws, answers)


@pytest.mark.parametrize("length", [100, 300], ids=lambda length: f"prompt {length}")
def test_a_prompt_encoded_in_pieces_gives_the_same_numbers(
    hosted: Hosted, oracle: Oracle, length: int
) -> None:
    hosted.ready(encoded_at_once=37)
    draws = [asked(length, 32, seed) for seed in range(2)]
    (answers,), _ = hosted.read(draws)
    judge(oracle, draws, answers)


def test_prompts_are_kept_up_to_a_number_of_tokens(hosted: Hosted, oracle: Oracle) -> None:
    hosted.ready(kept_tokens=250)
    order = [100, 120, 100, 140, 120, 100]
    batch = [asked(length) for length in order]
    answers = [hosted.read([each])[0][0][0] for each in batch]
    judge(oracle, batch, answers)
    assert [0, 0, 100, 0, 0, 0] == [answer.cached_tokens for answer in answers]


def test_random_reads_in_random_company_agree_with_the_oracle(hosted: Hosted, oracle: Oracle) -> None:
    """A few prompts, of which not all fit the store, any width, and one to four draws at a time."""
    hosted.ready(kept_tokens=500, encoded_at_once=100)
    chance = random.Random(7)
    batches = [
        [asked(length, width, chance.randrange(10**6)) for _ in range(chance.randint(1, 4))]
        for length, width in (
            (chance.choice([3, 90, 129, 270]), chance.choice([16, 32, 48, 64])) for _ in range(12)
        )
    ]
    answers, sizes = hosted.read(*batches)
    for batch, answer in zip(batches, answers, strict=True):
        judge(oracle, batch, answer)
    assert sum(map(len, batches)) == sum(sizes)


def test_reads_that_are_given_up_are_dropped_before_their_turn(hosted: Hosted) -> None:
    hosted.ready(slow=1.0)
    hosted.give_up([asked(30, 16, 0)], turns=3, seconds=0.3)  # is at work: its thread needs time to wake
    hosted.give_up([asked(50, 16, seed) for seed in (1, 2)], turns=3)
    (answers,), batches = hosted.read([asked(70)])
    assert [1] == batches
    assert 0 == answers[0].cached_tokens
    ((answer,),), _ = hosted.read([asked(50)])
    assert 0 == answer.cached_tokens, "its prompt was never encoded"


def test_a_model_in_bfloat16_answers_nearly_the_same(hosted: Hosted, oracle: Oracle) -> None:
    hosted.ready(dtype="bfloat16")
    each = asked(60)
    ((answer,),), _ = hosted.read([each])
    for row, own in zip(
        oracle.read(each.prompt, each.canvas, each.positions, each.ids), answer.logprobs, strict=True
    ):
        assert own != pytest.approx(row, abs=TOLERANCE)
        assert own == pytest.approx(row, abs=1.5)
