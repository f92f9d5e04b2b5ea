"""Wide choices: several reads of one canvas make one softmax, or it is told that they do not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from structured_server.core.plan import Group
from structured_server.core.policy import MAX_DRAWS, ByType, ReadPolicy
from structured_server.core.questions import Choice, Limits, Noul
from structured_server.core.reading import (
    LARGEST_DRIFT,
    Batch,
    GroupJob,
    GroupReading,
    ReadsSkipped,
    Reply,
    read_group,
)
from structured_server.core.reads import ANCHORS, Read, ReadRequest, Row
from structured_server.errors import UpstreamProtocolError
from tests.core.strategies import quick
from tests.core.synthetic import answers, concluded, drive, job, plan, schema
from tests.toy import LABELS, ToyTokenizer

PAIRS = [*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2))]
SPACED = ToyTokenizer([*LABELS, *PAIRS])
SHELVES = Choice(None, tuple((f"shelf {index}", None) for index in range(70)), limits=Limits())
PLAN = plan(schema(shelf=SHELVES), tokenizer=SPACED)
[WIDE] = PLAN.groups
CAP = 50
CHUNKS = 3  # of 140 label ids, 48 of which are new in each further chunk
SURE = ReadPolicy(samples=1)

Told = Callable[[ReadRequest, int], float]
"""From a read and a label id to a log-probability."""


def wide(*, may_extend: bool = True) -> GroupJob:
    return replace(job(WIDE, cap=CAP), may_extend=may_extend)


def said(request: ReadRequest, tell: Told) -> Read:
    row = {token_id: tell(request, token_id) for token_id in request.label_ids}
    return Read((Row(row, min(request.label_ids)),), prompt_tokens=3)


def read_wide(
    tell: Told, policy: ReadPolicy = SURE, made: GroupJob | None = None
) -> tuple[list[Batch], GroupReading]:
    return drive(read_group(made or wide(), policy), lambda batch: [said(r, tell) for r in batch.requests])


def uneven(_: ReadRequest, token_id: int) -> float:
    """Spread the whole probability unevenly over the label ids and others."""
    return -3.0 - (token_id * 37 % 101) / 20


def uniform(_: ReadRequest, _token_id: int) -> float:
    return -math.log(140)


def certain(_: ReadRequest, token_id: int) -> float:
    return -0.001 if token_id == WIDE.canvas.slots[0].options[60][0] else -20.0


def chunk_of(request: ReadRequest) -> int:
    return wide().chunks.index(request.label_ids)


def softmax(group: Group, tell: Callable[[int], float]) -> list[float]:
    """Return the options' probabilities from one read of all label ids."""
    logs = [special.logsumexp([tell(i) for i in option]) for option in group.canvas.slots[0].options]
    return [float(p) for p in special.softmax(logs)]


def sizes(batches: list[Batch]) -> list[tuple[int, bool]]:
    return [(len(batch.requests), batch.extra) for batch in batches]


def test_a_wide_choice_is_read_in_chunks_the_first_of_which_goes_first() -> None:
    batches, reading = read_wide(uneven)
    assert [(1, False), (2, False)] == sizes(batches)
    assert [[0], [1, 2]] == [[chunk_of(request) for request in batch.requests] for batch in batches]
    assert {batches[0].requests[0].canvas} == {r.canvas for batch in batches for r in batch.requests}
    anchors = WIDE.canvas.label_ids[:ANCHORS]
    assert all(set(anchors) <= set(r.label_ids) for batch in batches for r in batch.requests)
    assert (CHUNKS, 1, 0.0) == (len(reading.reads), len(reading.draws), reading.drift)
    assert (min(wide().chunks[0]),) == reading.preferred


@quick
@given(st.lists(st.floats(-30, -1), min_size=140, max_size=140), st.integers(ANCHORS + 1, 150))
def test_chunks_make_one_softmax_over_all_options(values: list[float], cap: int) -> None:
    said_of = dict(zip(WIDE.canvas.label_ids, values, strict=True))
    _, reading = read_wide(lambda _, i: said_of[i], made=job(WIDE, cap=cap))
    [[distribution]] = reading.draws
    assert distribution.probabilities == pytest.approx(softmax(WIDE, said_of.__getitem__), abs=1e-12)
    assert distribution.label_mass == pytest.approx(min(1, math.exp(special.logsumexp(values))))


def test_several_draws_are_each_read_in_chunks() -> None:
    batches, reading = read_wide(uneven, ReadPolicy(samples=4))
    assert [(4, False), (8, False)] == sizes(batches)
    assert 4 == len({request.canvas for batch in batches for request in batch.requests})
    assert (4, 12) == (len(reading.draws), len(reading.reads))
    led, _ = read_wide(uneven, ReadPolicy(samples=4, lead=True))
    assert [(1, False), (2, False), (3, False), (6, False)] == sizes(led)


def test_as_many_draws_as_have_statistics_are_read_of_every_chunk() -> None:
    batches, reading = read_wide(uneven, ReadPolicy(samples=MAX_DRAWS))
    assert [(MAX_DRAWS, False), (MAX_DRAWS * (CHUNKS - 1), False)] == sizes(batches)
    assert {MAX_DRAWS} == set(Counter(chunk_of(r) for batch in batches for r in batch.requests).values())
    assert MAX_DRAWS == answers(concluded(PLAN, [reading]))["shelf"].draws


def test_extra_draws_are_read_in_chunks_too() -> None:
    batches, reading = read_wide(uniform, ReadPolicy())
    assert [(1, False), (2, False), (3, True), (6, True)] == sizes(batches)
    assert (("shelf",), None, 4, 12) == (
        reading.extended_by,
        reading.skipped,
        len(reading.draws),
        len(reading.reads),
    )
    assert [(1, False), (2, False)] == sizes(read_wide(certain, ReadPolicy())[0])


def test_extra_draws_beyond_the_limit_of_reads_are_not_made_and_the_reason_is_told() -> None:
    batches, reading = read_wide(uniform, ReadPolicy(), wide(may_extend=False))
    assert [(1, False), (2, False)] == sizes(batches)
    assert ReadsSkipped("3 more would have passed the limit of reads, read.max_reads") == reading.skipped
    decision = concluded(PLAN, [reading])
    assert ["extra_reads_skipped", "alias_used"] == [warning.code for warning in decision.warnings]
    assert decision.warnings[0].message.endswith("passed the limit of reads, read.max_reads.")
    assert () == decision.extended_by


def test_a_certain_reading_does_not_mind_that_it_may_not_be_extended() -> None:
    assert read_wide(certain, ReadPolicy(), wide(may_extend=False))[1].skipped is None


# Reads that share no scale


def shifted(by: float, *, times: int, chunk: int = 1) -> Told:
    """Shift what is said of one chunk, in its first so many reads."""
    seen: Counter[tuple[int, ...]] = Counter()

    def tell(request: ReadRequest, token_id: int) -> float:
        if chunk_of(request) != chunk:
            return uneven(request, token_id)
        seen[request.canvas] += token_id == request.label_ids[0]
        return uneven(request, token_id) - (by if seen[request.canvas] <= times else 0)

    return tell


def test_a_chunk_that_is_shifted_by_a_nat_is_read_again() -> None:
    batches, reading = read_wide(shifted(1.0, times=1))
    assert [(1, False), (2, False), (1, False)] == sizes(batches)
    assert batches[1].requests[:1] == batches[2].requests
    assert (0.0, CHUNKS + 1) == (reading.drift, len(reading.reads))
    assert reading.draws == read_wide(uneven)[1].draws
    assert ["alias_used"] == [warning.code for warning in concluded(PLAN, [reading]).warnings]


def test_a_chunk_that_stays_shifted_is_told_with_its_drift() -> None:
    batches, reading = read_wide(shifted(1.0, times=9))
    assert [(1, False), (2, False), (1, False)] == sizes(batches)
    assert 1.0 == pytest.approx(reading.drift)
    [warning] = [w for w in concluded(PLAN, [reading]).warnings if w.code == "label_sets_drift"]
    assert "shelf" == warning.question
    assert "1 nats apart, also when repeated" in warning.message


@pytest.mark.parametrize(("by", "again"), [(LARGEST_DRIFT - 0.001, False), (LARGEST_DRIFT + 0.001, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_drift_up_to_the_largest_is_let_pass(by: float, again: bool, sign: int) -> None:
    batches, reading = read_wide(shifted(sign * by, times=9))
    assert (3 if again else 2) == len(batches)
    assert again == ("label_sets_drift" in {w.code for w in concluded(PLAN, [reading]).warnings})


def test_only_the_draws_that_drift_are_read_again() -> None:
    drifting: list[tuple[int, ...]] = []

    def tell(request: ReadRequest, token_id: int) -> float:
        if chunk_of(request) == 2 and request.canvas == wide().request(1).canvas:
            drifting.append(request.canvas)
            return uneven(request, token_id) - 1
        return uneven(request, token_id)

    batches, reading = read_wide(tell, ReadPolicy(samples=3))
    assert [(3, False), (6, False), (1, False)] == sizes(batches)
    assert (wide().request(1, 2),) == batches[2].requests
    assert 1.0 == pytest.approx(reading.drift)
    assert 10 == len(reading.reads)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_extra_reads_that_are_skipped_at_any_point_leave_the_first_draw(number: int) -> None:
    extra = [0]
    drifting = shifted(1.0, times=9)

    def reply(batch: Batch) -> Reply:
        if not batch.extra:
            return [said(r, uniform) for r in batch.requests]
        extra[0] += 1
        return ReadsSkipped("no") if extra[0] > number else [said(r, drifting) for r in batch.requests]

    batches, reading = drive(read_group(wide(), ReadPolicy()), reply)
    assert (ReadsSkipped("no"), 1, CHUNKS) == (reading.skipped, len(reading.draws), len(reading.reads))
    assert number + 1 == sum(batch.extra for batch in batches)
    assert 0.0 == reading.drift


def without_a_row(batch: Batch) -> Reply:
    return [Read((), 3) for _ in batch.requests]


def test_a_chunk_that_is_nonsense_is_an_upstream_error_in_first_reads_only() -> None:
    def reply(spoilt: Callable[[Batch], bool]) -> Callable[[Batch], Reply]:
        return lambda batch: (
            without_a_row(batch) if spoilt(batch) else [said(r, uniform) for r in batch.requests]
        )

    with pytest.raises(UpstreamProtocolError):
        drive(read_group(wide(), ReadPolicy()), reply(lambda batch: len(batch.requests) == 2))
    _, reading = drive(read_group(wide(), ReadPolicy()), reply(lambda batch: len(batch.requests) == 6))
    assert ReadsSkipped("more reads failed: 0 rows came back for 1 slots") == reading.skipped
    assert 1 == len(reading.draws)


# Temperature

HEAT = ReadPolicy(samples=2, temperatures=ByType(noul=2.0, choice=1.0, score=1.0))


def test_the_temperature_divides_log_probabilities_before_draws_are_pooled() -> None:
    compiled = plan(schema(q=Noul("?")))
    [group] = compiled.groups
    ((yes, _), (no, _)) = group.canvas.slots[0].options
    draws = iter([(0.72, 0.08), (0.3, 0.1)])

    def reply(batch: Batch) -> Reply:
        rows = []
        for _ in batch.requests:
            p_yes, p_no = next(draws)
            row = dict.fromkeys(group.canvas.label_ids, -math.inf)
            rows.append(Row(row | {yes: math.log(p_yes), no: math.log(p_no)}, None))
        return [Read((row,), 3) for row in rows]

    _, reading = drive(read_group(job(group), HEAT), reply)
    told = [draw[0].probabilities[0] for draw in reading.draws]
    assert [0.75, math.sqrt(3) / (1 + math.sqrt(3))] == pytest.approx(told)
    assert [0.8, 0.4] == pytest.approx([draw[0].label_mass for draw in reading.draws])
    answer = answers(concluded(compiled, [reading]))["q"]
    assert sum(told) / 2 == pytest.approx(answer.headline)
    assert 0.6 == pytest.approx(answer.distribution.label_mass)


@quick
@given(st.floats(0.05, 20))
def test_a_temperature_moves_neither_what_is_uncertain_nor_the_label_mass(temperature: float) -> None:
    policy = ReadPolicy(temperatures=ByType.same(temperature))
    plain, heated = read_wide(uneven, ReadPolicy())[1], read_wide(uneven, policy)[1]
    assert plain.first_entropies == heated.first_entropies
    assert plain.extended_by == heated.extended_by
    assert [d[0].label_mass for d in plain.draws] == pytest.approx([d[0].label_mass for d in heated.draws])
    first = answers(concluded(PLAN, [heated]))["shelf"].first_entropy
    assert first == pytest.approx(plain.draws[0][0].entropy)


def test_each_type_of_question_has_its_own_temperature_and_threshold() -> None:
    policy = ReadPolicy(
        temperatures=ByType(noul=3, choice=2, score=1),
        entropy_thresholds=ByType(noul=0.1, choice=9, score=0.1),
    )
    batches, reading = read_wide(uneven, policy)
    assert [(1, False), (2, False)] == sizes(batches), "even 70 options have less than nine nats"
    expected = softmax(WIDE, lambda i: uneven(batches[0].requests[0], i))
    powers = [p**0.5 for p in expected]
    assert [p / sum(powers) for p in powers] == pytest.approx(list(reading.draws[0][0].probabilities))


def test_a_constrained_read_tells_no_label_mass() -> None:
    constrained = replace(job(WIDE), constrained=True)
    batches, reading = read_wide(uniform, made=constrained)
    assert batches[0].requests[0].constrained
    assert reading.draws[0][0].label_mass is None
    assert answers(concluded(PLAN, [reading]))["shelf"].distribution.label_mass is None
