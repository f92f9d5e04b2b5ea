"""Reading a group: which reads it asks for, and what becomes of the replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.policy import EXTRA_DRAWS, MAX_DRAWS, ByType, ReadPolicy
from structured_server.core.reading import Batch, ReadsSkipped, read_group
from structured_server.core.reads import Read, Row
from structured_server.errors import UpstreamProtocolError
from tests.core.strategies import probabilities, quick
from tests.core.synthetic import drive, job, read_with, saying
from tests.core.triage import AUTO, CERTAIN, DOUBTFUL, GROUP, Believed, doubtful_then


def sizes(batches: Sequence[Batch]) -> list[tuple[int, bool]]:
    return [(len(batch.requests), batch.extra) for batch in batches]


def test_a_certain_group_is_read_once() -> None:
    batches, reading = read_with(GROUP, AUTO, [CERTAIN])
    assert [(1, False)] == sizes(batches)
    assert ((), None, 1) == (reading.extended_by, reading.skipped, len(reading.draws))


def test_one_uncertain_question_draws_three_times_more() -> None:
    batches, reading = read_with(GROUP, AUTO, [DOUBTFUL] * 4)
    assert [(1, False), (3, True)] == sizes(batches)
    assert (("team",), None, 4) == (reading.extended_by, reading.skipped, len(reading.draws))


def test_every_uncertain_question_is_named() -> None:
    unsure: Believed = ((0.5, 0.5), (0.0, 1.0, 0.0), (0.4, 0.3, 0.3))
    _, reading = read_with(GROUP, AUTO, [unsure, *[CERTAIN] * 3])
    assert ("urgent", "severity") == reading.extended_by


@quick
@given(st.tuples(probabilities(2, 2), probabilities(3, 3), probabilities(3, 3)), st.floats(0, 1.2))
def test_more_is_drawn_where_the_first_draws_entropy_passes_the_threshold(
    believed: Believed, threshold: float
) -> None:
    policy = ReadPolicy(entropy_thresholds=ByType.same(threshold))
    batches, reading = read_with(GROUP, policy, [believed] * 4)
    above = [
        name
        for name, first in zip(GROUP.identifiers, reading.draws[0], strict=True)
        if first.entropy > threshold
    ]
    assert above == list(reading.extended_by)
    assert (2 if above else 1) == len(batches)


def test_entropy_at_the_threshold_is_certain_enough() -> None:
    _, reading = read_with(GROUP, AUTO, [DOUBTFUL] * 4)
    exactly = reading.draws[0][1].entropy
    batches, _ = read_with(GROUP, ReadPolicy(entropy_thresholds=ByType.same(exactly)), [DOUBTFUL])
    assert [(1, False)] == sizes(batches)


def test_label_mass_plays_no_part_in_uncertainty() -> None:
    batches, _ = read_with(GROUP, AUTO, [CERTAIN], mass=0.01)
    assert [(1, False)] == sizes(batches)


def test_extra_draws_have_other_noise_in_the_same_canvas() -> None:
    batches, _ = read_with(GROUP, AUTO, [DOUBTFUL] * 4)
    requests = [request for batch in batches for request in batch.requests]
    assert [job(GROUP).request(draw) for draw in range(1 + EXTRA_DRAWS)] == requests
    assert 4 == len({request.canvas for request in requests})
    for request in requests:
        assert request == replace(requests[0], canvas=request.canvas)
        differing = [
            at
            for at, (one, other) in enumerate(zip(request.canvas, GROUP.canvas.ids, strict=True))
            if one != other
        ]
        assert list(GROUP.canvas.positions) == differing


def test_a_request_asks_for_all_labels_at_all_slots() -> None:
    request = job(GROUP).request(0)
    assert GROUP.canvas.positions == request.positions
    assert GROUP.canvas.label_ids == request.label_ids
    assert (1, 2, 3) == request.prompt.ids


@pytest.mark.parametrize("samples", [1, 2, 7, MAX_DRAWS])
def test_a_number_of_samples_is_drawn_at_once_and_never_extended(samples: int) -> None:
    batches, reading = read_with(GROUP, ReadPolicy(samples=samples), [DOUBTFUL] * samples)
    assert [(samples, False)] == sizes(batches)
    assert samples == len({request.canvas for request in batches[0].requests})
    assert ((), samples) == (reading.extended_by, len(reading.draws))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(1, [(1, False)]), (2, [(1, False), (1, False)]), (5, [(1, False), (4, False)])],
)
def test_a_leading_draw_goes_first(samples: int, expected: list[tuple[int, bool]]) -> None:
    led, _ = read_with(GROUP, ReadPolicy(samples=samples, lead=True), [CERTAIN] * samples)
    at_once, _ = read_with(GROUP, ReadPolicy(samples=samples), [CERTAIN] * samples)
    assert expected == sizes(led)
    assert [r for batch in at_once for r in batch.requests] == [r for batch in led for r in batch.requests]


def test_a_lead_is_what_auto_does_anyway() -> None:
    batches, _ = read_with(GROUP, ReadPolicy(lead=True), [DOUBTFUL] * 4)
    assert [(1, False), (3, True)] == sizes(batches)


@pytest.mark.parametrize("policy", [AUTO, ReadPolicy(samples=4), ReadPolicy(samples=4, lead=True)])
def test_masked_slots_are_read_once_whatever_is_asked_for(policy: ReadPolicy) -> None:
    masked = job(GROUP, mask=4)
    batches, reading = drive(read_group(masked, policy), lambda _: [saying(GROUP, *DOUBTFUL)])
    assert [(1, False)] == sizes(batches)
    assert ((), 1) == (reading.extended_by, len(reading.draws))
    [request] = batches[0].requests
    assert [4, 4, 4] == [request.canvas[position] for position in request.positions]


def test_replies_become_draws_in_their_order() -> None:
    other: Believed = ((0.0, 1.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    _, reading = read_with(GROUP, ReadPolicy(samples=3, lead=True), [CERTAIN, other, DOUBTFUL])
    assert [(1.0, 0.0), (0.0, 1.0), (1.0, 0.0)] == [draw[0].probabilities for draw in reading.draws]
    assert 3 == len(reading.reads)


def test_the_preferred_tokens_are_those_of_the_first_draw() -> None:
    tops = iter([77, 78, 79, 80])
    _, reading = drive(
        read_group(job(GROUP), AUTO),
        lambda batch: [saying(GROUP, *DOUBTFUL, top=next(tops)) for _ in batch.requests],
    )
    assert (77, 77, 77) == reading.preferred


def without_rows(read: Read) -> Read:
    return replace(read, rows=())


def at_the_floor(read: Read) -> Read:
    return replace(read, rows=tuple(Row(dict.fromkeys(row.logprobs, -9999.0), None) for row in read.rows))


def test_extra_reads_that_were_skipped_leave_the_first() -> None:
    reading = doubtful_then(lambda _: ReadsSkipped("the deadline was near"))
    assert (ReadsSkipped("the deadline was near"), 1) == (reading.skipped, len(reading.draws))
    assert (("team",), 1) == (reading.extended_by, len(reading.reads))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (without_rows, "more reads failed: 0 rows came back for 3 slots"),
        (at_the_floor, "more reads failed: every label of a slot has a log-probability at or below -1000"),
    ],
)
def test_extra_reads_that_are_nonsense_leave_the_first(spoil: Callable[[Read], Read], reason: str) -> None:
    good = saying(GROUP, *CERTAIN)
    reading = doubtful_then(lambda _: [good, good, spoil(good)])
    assert (ReadsSkipped(reason), 1, 1) == (reading.skipped, len(reading.draws), len(reading.reads))


@pytest.mark.parametrize("spoil", [without_rows, at_the_floor])
@pytest.mark.parametrize(
    "policy", [AUTO, ReadPolicy(samples=2), ReadPolicy(samples=2, lead=True)], ids=["auto", "two", "lead"]
)
def test_nonsense_in_other_reads_is_an_upstream_error(
    spoil: Callable[[Read], Read], policy: ReadPolicy
) -> None:
    with pytest.raises(UpstreamProtocolError):
        drive(
            read_group(job(GROUP), policy),
            lambda batch: [spoil(saying(GROUP, *CERTAIN)) for _ in batch.requests],
        )


def test_first_reads_cannot_be_skipped() -> None:
    with pytest.raises(AssertionError, match="only extra reads may be skipped"):
        drive(read_group(job(GROUP), AUTO), lambda _: ReadsSkipped("no"))


@pytest.mark.parametrize("extra", [1, 5, MAX_DRAWS - 1])
def test_as_many_further_draws_are_made_as_the_policy_says(extra: int) -> None:
    batches, reading = read_with(GROUP, ReadPolicy(extra_draws=extra), [DOUBTFUL] * (1 + extra))
    assert [(1, False), (extra, True)] == sizes(batches)
    assert 1 + extra == len(reading.draws)
    requests = [request for batch in batches for request in batch.requests]
    assert [job(GROUP).request(draw) for draw in range(1 + extra)] == requests


def test_a_policy_without_further_draws_asks_for_none_and_calls_nothing_uncertain() -> None:
    batches, reading = read_with(GROUP, ReadPolicy(extra_draws=0), [DOUBTFUL])
    assert [(1, False)] == sizes(batches)
    assert ((), None) == (reading.extended_by, reading.skipped)


def test_further_draws_beyond_the_limit_of_reads_are_named_with_their_number() -> None:
    limited = replace(job(GROUP), may_extend=False)
    _, reading = drive(read_group(limited, ReadPolicy(extra_draws=6)), lambda _: [saying(GROUP, *DOUBTFUL)])
    reason = "6 more would have passed the limit of reads, read.max_reads"
    assert ReadsSkipped(reason) == reading.skipped
