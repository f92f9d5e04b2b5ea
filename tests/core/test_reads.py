"""Reads: noise and its seeds, and what a backend must answer."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from structured_server.core.canvas import Canvas, Slot
from structured_server.core.reads import (
    ANCHORS,
    LARGEST_LOGPROB,
    Prompt,
    Read,
    ReadRequest,
    Row,
    checked,
    derive_seed,
    drift,
    fill_with_mask,
    fill_with_noise,
    label_chunks,
    merge,
)
from structured_server.errors import UpstreamProtocolError
from tests.core.strategies import any_text, quick

CANVAS = Canvas(
    tuple(range(100, 116)),
    (Slot(3, ((10, 11), (12,))), Slot(7, ((10, 11), (14,))), Slot(9, ((16,), (18,), (20,)))),
)
LABELS = {10, 11, 12, 14, 16, 18, 20}
REQUEST = ReadRequest(Prompt((1, 2)), CANVAS.ids, CANVAS.positions, CANVAS.label_ids)
seeds = st.binary(min_size=32, max_size=32)
draw_numbers = st.integers(0, 31)


def noise_of(filled: tuple[int, ...]) -> list[int]:
    return [filled[position] for position in CANVAS.positions]


def good_read(**changes: float) -> Read:
    """Return a complete reply; `changes` replace the last slot's value of an id written as `id10`."""
    rows = [dict.fromkeys(CANVAS.label_ids, -2.0) for _ in CANVAS.positions]
    rows[-1] |= {int(name.removeprefix("id")): value for name, value in changes.items()}
    return Read(tuple(Row(row, 5) for row in rows), prompt_tokens=2, cached_tokens=1)


@quick
@given(seeds, draw_numbers, st.sets(st.integers(0, 40), min_size=8))
def test_noise_is_of_the_noise_ids_and_never_a_label_of_any_slot(
    seed: bytes, draw: int, ids: set[int]
) -> None:
    noise_ids = sorted(ids)
    allowed = ids - LABELS
    filled = fill_with_noise(CANVAS, seed, draw, noise_ids)
    assert allowed >= set(noise_of(filled))


@quick
@given(seeds, draw_numbers)
def test_noise_touches_nothing_but_the_slots(seed: bytes, draw: int) -> None:
    filled = fill_with_noise(CANVAS, seed, draw, range(1000, 2000))
    changed = [at for at, (old, new) in enumerate(zip(CANVAS.ids, filled, strict=True)) if old != new]
    assert list(CANVAS.positions) == changed


@quick
@given(seeds, draw_numbers)
def test_the_same_seed_and_draw_give_the_same_canvas(seed: bytes, draw: int) -> None:
    noise_ids = range(262_144)
    assert fill_with_noise(CANVAS, seed, draw, noise_ids) == fill_with_noise(CANVAS, seed, draw, noise_ids)


@quick
@given(seeds, seeds)
@example(bytes(32), bytes([1, *bytes(31)]))
def test_other_draws_and_other_seeds_give_other_noise(seed: bytes, other: bytes) -> None:
    seen = [fill_with_noise(CANVAS, seed, draw, range(262_144)) for draw in range(32)]
    seen += [fill_with_noise(CANVAS, other, draw, range(262_144)) for draw in range(32)]
    assert (64 if seed != other else 32) == len(set(seen))


def test_seeds_and_noise_are_those_of_the_method() -> None:
    """Moving them moves every number, which takes a new method."""
    seed = derive_seed(7, "the state", "the questions")
    assert "8a9bc2ac8b8e83bee060555d3399bbc53343945de6aa3835d5d051631fadc9a9" == seed.hex()
    drawn = [noise_of(fill_with_noise(CANVAS, seed, draw, range(262_144))) for draw in (0, 1)]
    assert [[78822, 60641, 225491], [112480, 232066, 215591]] == drawn


def test_noise_is_uniform_in_every_slot() -> None:
    noise_ids = [*range(5), 10, 12, *range(30, 35)]  # ten, and two labels among them
    filled = [noise_of(fill_with_noise(CANVAS, bytes(32), draw, noise_ids)) for draw in range(3000)]
    for slot in zip(*filled, strict=True):
        counts = Counter(slot)
        assert 10 == len(counts)
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_slots_are_filled_independently_of_each_other() -> None:
    filled = [noise_of(fill_with_noise(CANVAS, bytes(32), draw, range(30, 40))) for draw in range(3000)]
    pairs = Counter((first, second) for first, second, _ in filled)
    assert 100 == len(pairs)
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3


def test_the_whole_vocabulary_is_reached() -> None:
    """Numbers of 18 bits come from both ends and the middle."""
    drawn = [noise_of(fill_with_noise(CANVAS, bytes(32), draw, range(262_144)))[0] for draw in range(400)]
    assert stats.kstest([number / 262_144 for number in drawn], "uniform").pvalue > 1e-3


@pytest.mark.parametrize("noise_ids", [(7,), (0, 10), (10, 11, 12, 14, 16, 18, 20, 21)])
def test_a_vocabulary_with_one_token_that_is_no_label_is_enough(noise_ids: tuple[int, ...]) -> None:
    [expected] = set(noise_ids) - LABELS
    assert [expected] * 3 == noise_of(fill_with_noise(CANVAS, bytes(32), 0, noise_ids))


@pytest.mark.parametrize("noise_ids", [(), (10,), (10, 20), tuple(sorted(LABELS))])
def test_a_vocabulary_of_nothing_but_labels_is_refused(noise_ids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as refused:
        fill_with_noise(CANVAS, bytes(32), 0, noise_ids)
    assert "the vocabulary leaves no token to use as noise" == str(refused.value)


def test_a_canvas_without_slots_is_filled_as_it_is() -> None:
    assert (1, 2) == fill_with_noise(Canvas((1, 2), ()), bytes(32), 0, (5,))


def test_the_mask_fills_every_slot_and_nothing_else() -> None:
    filled = fill_with_mask(CANVAS, 4)
    assert [4, 4, 4] == noise_of(filled)
    assert 13 == sum(old == new for old, new in zip(CANVAS.ids, filled, strict=True))


parts = st.tuples(st.integers(-(2**70), 2**70), any_text, any_text)


@quick
@given(st.lists(any_text, max_size=4), st.lists(any_text, max_size=4))
@example([], [""])
@example(["a", "b"], ["ab"])
def test_seeds_tell_apart_how_much_content_there_is(one: list[str], other: list[str]) -> None:
    assert (one == other) == (derive_seed(0, "", *one) == derive_seed(0, "", *other))


@quick
@given(parts, parts)
@example((0, "ab", "c"), (0, "a", "bc"))
@example((1, "1", ""), (11, "", ""))
@example((0, "", "x"), (0, "x", ""))
def test_seeds_are_equal_only_where_all_their_parts_are(
    one: tuple[int, str, str], other: tuple[int, str, str]
) -> None:
    assert (one == other) == (derive_seed(*one) == derive_seed(*other))
    assert 32 == len(derive_seed(*one))


def test_half_of_a_surrogate_pair_can_be_in_a_state() -> None:
    assert derive_seed(0, "\ud83d", "") != derive_seed(0, "\udd83", "")


@quick
@given(st.lists(st.floats(-10_000, 0) | st.just(-math.inf), min_size=21, max_size=21))
def test_a_complete_read_passes_unchanged(values: list[float]) -> None:
    numbers = iter(values)
    rows = tuple(Row(dict(zip(CANVAS.label_ids, islice(numbers, 7), strict=True)), None) for _ in range(3))
    read = Read(rows, prompt_tokens=2)
    assert read == checked(REQUEST, read)


def test_ids_that_nobody_asked_for_are_dropped() -> None:
    read = good_read(id999=-0.5)
    assert good_read() == checked(REQUEST, read)


def test_counts_and_the_preferred_id_are_kept() -> None:
    read = checked(REQUEST, good_read())
    assert (2, 1, [5, 5, 5]) == (read.prompt_tokens, read.cached_tokens, [row.top for row in read.rows])


@pytest.mark.parametrize("value", [1e-12, 5e-4, LARGEST_LOGPROB])
def test_a_log_probability_just_above_0_becomes_0(value: float) -> None:
    assert 0.0 == checked(REQUEST, good_read(id10=value)).rows[-1].logprobs[10]


@pytest.mark.parametrize("value", [-math.inf, -9999.0, -1000.0, -0.0])
def test_any_log_probability_from_minus_infinity_to_0_is_kept(value: float) -> None:
    assert value == checked(REQUEST, good_read(id10=value)).rows[-1].logprobs[10]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.0, math.nextafter(LARGEST_LOGPROB, 1)])
def test_what_cannot_be_a_log_probability_is_an_upstream_error(value: float) -> None:
    with pytest.raises(UpstreamProtocolError) as refused:
        checked(REQUEST, good_read(id10=value))
    assert f"position 9 has {value} for id 10, which is no log-probability." == refused.value.message


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_another_number_of_rows_is_an_upstream_error(count: int) -> None:
    rows = (good_read().rows * 2)[:count]
    with pytest.raises(UpstreamProtocolError) as refused:
        checked(REQUEST, Read(rows, prompt_tokens=2))
    assert f"{count} rows came back for 3 slots." == refused.value.message


@pytest.mark.parametrize("missing", [[10], [12, 20], sorted(LABELS)])
def test_a_missing_label_is_an_upstream_error(missing: list[int]) -> None:
    rows = [dict(row.logprobs) for row in good_read().rows]
    for label in missing:
        del rows[1][label]
    with pytest.raises(UpstreamProtocolError) as refused:
        checked(REQUEST, Read(tuple(Row(row, None) for row in rows), prompt_tokens=2))
    assert f"position 7 has no log-probability for label ids {missing}." == refused.value.message


def test_a_request_knows_its_width() -> None:
    assert 16 == REQUEST.width


def test_all_that_is_no_slot_is_pinned() -> None:
    assert sorted({*range(16)} - {3, 7, 9}) == list(REQUEST.pinned)


# Label sets that one read cannot hold

label_sets = st.sets(st.integers(0, 3000), min_size=2, max_size=300).map(sorted)
caps = st.integers(ANCHORS + 1, 128)


@quick
@given(label_sets, caps)
def test_chunks_hold_every_id_once_beside_the_anchors(ids: list[int], cap: int) -> None:
    chunks = label_chunks(ids, cap)
    assert all(list(chunk) == sorted(set(chunk)) and len(chunk) <= cap for chunk in chunks)
    counts = Counter(token_id for chunk in chunks for token_id in chunk)
    anchors = ids[:ANCHORS]
    assert ids == sorted(counts)
    assert {len(chunks)} == {counts[anchor] for anchor in anchors}
    assert {1} >= {count for token_id, count in counts.items() if token_id not in anchors}


@quick
@given(label_sets, caps)
def test_there_are_no_more_chunks_than_it_takes(ids: list[int], cap: int) -> None:
    """ceil(ids / (cap - anchors)) reads: only the first chunk's anchors are no repetition."""
    assert max(1, math.ceil((len(ids) - ANCHORS) / (cap - ANCHORS))) == len(label_chunks(ids, cap))


@pytest.mark.parametrize(
    ("count", "cap", "expected"),
    [(490, 128, [128, 128, 128, 112]), (128, 128, [128]), (129, 128, [128, 3]), (2000, None, [2000])],
)
def test_chunks_are_as_large_as_a_read_allows(count: int, cap: int | None, expected: list[int]) -> None:
    assert expected == [len(chunk) for chunk in label_chunks(range(count), cap)]


def read_of(*rows: dict[int, float], top: int | None = None, prompt_tokens: int = 2) -> Read:
    return Read(tuple(Row(row, top) for row in rows), prompt_tokens, cached_tokens=1)


@quick
@given(label_sets, caps, st.data())
def test_merged_chunks_are_what_one_read_would_have_said(
    ids: list[int], cap: int, data: st.DataObject
) -> None:
    values = [dict(zip(ids, data.draw(_logprobs(len(ids))), strict=True)) for _ in range(2)]
    chunks = label_chunks(ids, cap)
    reads = [
        read_of(*({i: row[i] for i in chunk} for row in values), top=n) for n, chunk in enumerate(chunks)
    ]
    assert read_of(*values, top=0) == merge(reads)
    assert [0.0] * len(reads) == [drift(reads[0], other) for other in reads]


def _logprobs(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(-60, 0) | st.just(-math.inf), min_size=count, max_size=count)


def test_of_an_id_in_several_chunks_the_first_chunk_counts() -> None:
    one, other = read_of({1: -1.0, 2: -2.0}, top=5), read_of({1: -9.0, 3: -3.0}, top=6, prompt_tokens=7)
    assert read_of({1: -1.0, 2: -2.0, 3: -3.0}, top=5) == merge([one, other])


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ([{1: -1.0, 2: -2.0}], [{1: -1.0, 2: -2.5, 3: -9.0}], 0.5),
        ([{1: -1.0, 2: -2.0}], [{1: -1.25, 2: -2.0}], 0.25),
        ([{1: -1.0}, {1: -1.0}], [{1: -1.0}, {1: -3.0}], 2.0),
        ([{1: -math.inf, 2: -2.0}], [{1: -math.inf, 2: -3.0}], 1.0),
        ([{1: -math.inf, 2: -2.0}], [{1: -4.0, 2: -2.0}], math.inf),
    ],
)
def test_reads_drift_as_far_as_any_id_that_both_have_at_any_slot(
    first: list[dict[int, float]], other: list[dict[int, float]], expected: float
) -> None:
    assert expected == drift(read_of(*first), read_of(*other)) == drift(read_of(*other), read_of(*first))


def test_reads_drift_in_what_the_model_likes_best_even_where_all_labels_are_at_the_bottom() -> None:
    first, other = (
        Read((Row({7: -math.inf}, top, top_logprob=value),), 1) for top, value in ((1, -0.5), (2, -1.5))
    )
    assert 1.0 == drift(first, other)
    silent = Read((Row({7: -math.inf}, None),), 1)
    assert 0.0 == drift(first, silent)
