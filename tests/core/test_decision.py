"""The decision: which reads it asks for, and what it makes of the replies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core import distribution as d
from structured_server.core.answers import LOW_LABEL_MASS, Answer, Reason
from structured_server.core.decision import (
    EXTRA_DRAWS,
    MAX_DRAWS,
    Batch,
    Decision,
    GroupReading,
    ReadPolicy,
    ReadsSkipped,
    Reply,
    conclude,
    read_group,
)
from structured_server.core.plan import Plan, ReadOptions
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.reads import Read, Row
from structured_server.errors import UpstreamProtocolError
from tests.core.strategies import probabilities, quick, schemas
from tests.core.synthetic import TOY, drive, job, plan, read_with, saying, schema

URGENT = Noul("Is it urgent?")
TEAM = Choice("Whose is it?", (("compute", None), ("networking", None), ("billing", None)))
BAD = Score("How bad?", ("none", "low", "high"))
TRIAGE = schema(urgent=URGENT, team=TEAM, severity=BAD)
TRIAGE_PLAN = plan(TRIAGE)
[GROUP] = TRIAGE_PLAN.groups

Believed = Sequence[Sequence[float]]
CERTAIN: Believed = ((1.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
DOUBTFUL: Believed = ((1.0, 0.0), (0.3, 0.4, 0.3), (0.0, 0.0, 1.0))
AUTO = ReadPolicy()


def answers_with(questions: Schema, *draws: Believed, mass: float = 1.0, top: int | None = None) -> Decision:
    """Decide questions that share a canvas, with one draw for each of the replies."""
    compiled = plan(questions)
    [group] = compiled.groups
    said = iter(draws)
    _, reading = drive(
        read_group(job(group), ReadPolicy(samples=len(draws))),
        lambda batch: [saying(group, *next(said), mass=mass, top=top) for _ in batch.requests],
    )
    return concluded(questions, compiled, [reading])


def concluded(questions: Schema, compiled: Plan, readings: Sequence[GroupReading]) -> Decision:
    return conclude(questions, compiled, readings, TOY.token_text)


def answer_to(question: Question, *draws: Sequence[float], mass: float = 1.0) -> Answer:
    """Answer one question read alone."""
    return answers_with(schema(q=question), *[[draw] for draw in draws], mass=mass).answers["q"]


def sizes(batches: Sequence[Batch]) -> list[tuple[int, bool]]:
    return [(len(batch.requests), batch.extra) for batch in batches]


# Which reads are asked for


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
    policy = ReadPolicy(entropy_threshold=threshold)
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
    batches, _ = read_with(GROUP, ReadPolicy(entropy_threshold=exactly), [DOUBTFUL])
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


def doubtful_then(extra: Callable[[Batch], Reply]) -> GroupReading:
    """Read the group with a doubtful first draw and this reply to the extra ones."""
    _, reading = drive(
        read_group(job(GROUP), AUTO),
        lambda batch: extra(batch) if batch.extra else [saying(GROUP, *DOUBTFUL)],
    )
    return reading


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


@pytest.mark.parametrize("samples", [0, -1, MAX_DRAWS + 1])
def test_a_policy_refuses_a_number_of_samples_that_has_no_statistics(samples: int) -> None:
    with pytest.raises(ValueError) as refused:
        ReadPolicy(samples=samples)
    assert f"samples must be auto or from 1 to 32, got {samples}" == str(refused.value)


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_a_policy_refuses_a_threshold_that_is_no_entropy(threshold: float) -> None:
    with pytest.raises(ValueError, match="must be 0 nats or more"):
        ReadPolicy(entropy_threshold=threshold)


# What is made of the replies


@st.composite
def decisions(draw: st.DrawFn) -> tuple[Schema, Decision]:
    """Draw a question set, and decide it with random replies."""
    questions = draw(schemas(most=4))
    policy = ReadPolicy(samples=draw(st.integers(1, 5)))
    compiled = plan(questions, ReadOptions(isolate=draw(st.sampled_from(["none", "noul", "all"]))))
    readings = []
    for group in compiled.groups:
        counts = [len(slot.options) for slot in group.canvas.slots]
        believed = st.tuples(*(probabilities(count, count) for count in counts))
        said = draw(st.lists(believed, min_size=5, max_size=5))
        readings.append(read_with(group, policy, said, mass=draw(st.floats(0.001, 1)))[1])
    return questions, concluded(questions, compiled, readings)


@quick
@given(decisions())
def test_answers_come_in_the_callers_order_and_to_every_question(drawn: tuple[Schema, Decision]) -> None:
    questions, decision = drawn
    asked = [(name, answer.question) for name, answer in decision.answers.items()]
    assert list(questions.questions) == asked


@quick
@given(decisions())
def test_every_answer_is_sound(drawn: tuple[Schema, Decision]) -> None:
    for answer in drawn[1].answers.values():
        reading = answer.distribution
        assert math.fsum(reading.probabilities) == pytest.approx(1, abs=1e-9)
        assert len(answer.question.options) == len(reading.probabilities)
        assert 0 <= answer.option < len(reading.probabilities)
        assert 0 <= answer.agreement <= 1
        assert reading.label_mass is not None
        assert 0 <= reading.label_mass <= 1
        assert (answer.draws > 1) == (answer.interval_95 is not None) == (answer.standard_error is not None)
        if answer.interval_95 is not None:
            assert answer.interval_95[0] - 1e-12 <= answer.headline <= answer.interval_95[1] + 1e-12


@quick
@given(decisions())
def test_reads_and_draws_are_counted(drawn: tuple[Schema, Decision]) -> None:
    _, decision = drawn
    assert sum(len(reading.draws) for reading in decision.readings) == len(decision.reads)
    assert {len(reading.draws) for reading in decision.readings} == {
        answer.draws for answer in decision.answers.values()
    }


@quick
@given(probabilities(3, 3), st.integers(2, 6))
def test_equal_draws_answer_like_one(p: tuple[float, ...], count: int) -> None:
    one, many = answer_to(TEAM, p), answer_to(TEAM, *[p] * count)
    assert many.distribution.probabilities == pytest.approx(one.distribution.probabilities)
    assert 1.0 == many.agreement
    assert many.headline == pytest.approx(one.headline)
    assert many.standard_error == pytest.approx(0, abs=1e-12)


def test_one_draw_gives_its_own_numbers() -> None:
    decision = answers_with(TRIAGE, ((0.7, 0.3), (0.2, 0.7, 0.1), (0.1, 0.3, 0.6)), mass=0.8)
    urgent, team, severity = decision.answers.values()
    assert [0.7, 0.7, 1.5] == pytest.approx([urgent.headline, team.headline, severity.headline])
    assert [0, 1, 2] == [urgent.option, team.option, severity.option]
    assert {(1, 1.0, None, None, "decided")} == {
        (a.draws, a.agreement, a.standard_error, a.interval_95, a.status) for a in decision.answers.values()
    }
    assert [0.8] * 3 == pytest.approx([a.distribution.label_mass for a in decision.answers.values()])


def test_several_draws_are_averaged_and_their_spread_told() -> None:
    firsts = [0.9, 0.7, 0.8, 0.4]
    answer = answer_to(URGENT, *[(p, 1 - p) for p in firsts])
    assert 0.7 == pytest.approx(answer.headline)
    assert (0.7, 0.3) == pytest.approx(answer.distribution.probabilities)
    assert d.standard_error(firsts) == pytest.approx(answer.standard_error)
    assert d.interval_95(firsts) == pytest.approx(answer.interval_95)
    assert (4, 0.75) == (answer.draws, answer.agreement)
    assert d.entropy((0.9, 0.1)) == pytest.approx(answer.first_entropy)


def test_the_spread_of_a_choice_is_that_of_the_chosen_option() -> None:
    draws = [(0.1, 0.6, 0.3), (0.5, 0.4, 0.1), (0.0, 0.9, 0.1)]
    answer = answer_to(TEAM, *draws)
    assert 1 == answer.option
    assert 2 / 3 == pytest.approx(answer.agreement)
    assert d.standard_error([0.6, 0.4, 0.9]) == pytest.approx(answer.standard_error)


def test_the_spread_of_a_score_is_in_levels_and_clipped_to_the_highest() -> None:
    answer = answer_to(BAD, (0.0, 0.0, 1.0), (0.0, 0.5, 0.5))
    assert 2 == answer.option
    assert 1.75 == pytest.approx(answer.headline)
    assert d.interval_95([2.0, 1.5], upper=2) == pytest.approx(answer.interval_95)
    assert (0.0, 2.0) == answer.interval_95


@pytest.mark.parametrize(
    ("threshold", "p_yes", "option"),
    [
        (0.5, 0.5, 0),
        (0.5, 0.49, 1),
        (0.6, 0.55, 1),
        (0.9, 0.9, 0),
        (0.2, 0.25, 0),
        (0.0, 0.0, 0),
        (1.0, 0.99, 1),
        (1.0, 1.0, 0),
    ],
)
def test_a_nouls_threshold_decides(threshold: float, p_yes: float, option: int) -> None:
    answer = answer_to(Noul("?", threshold=threshold), (p_yes, 1 - p_yes))
    assert (option, "decided") == (answer.option, answer.status)
    assert p_yes == pytest.approx(answer.headline)


def test_agreement_of_a_noul_counts_sides_of_its_threshold() -> None:
    answer = answer_to(Noul("?", threshold=0.8), (0.9, 0.1), (0.7, 0.3), (0.6, 0.4), (0.6, 0.4))
    assert (1, 0.75) == (answer.option, answer.agreement)


@pytest.mark.parametrize(
    ("limits", "reasons"),
    [
        (Limits(), ()),
        (Limits(min_top_probability=0.5, max_normalized_entropy=0.96, min_label_mass=0.25), ()),
        (Limits(min_top_probability=0.6), (Reason("top_probability_below_min", 0.5, 0.6),)),
        (
            Limits(max_normalized_entropy=0.9),
            (Reason("normalized_entropy_above_max", 1.5 * math.log(2) / math.log(3), 0.9),),
        ),
        (Limits(min_label_mass=0.3), (Reason("label_mass_below_min", 0.25, 0.3),)),
        (
            Limits(0.6, 0.9, 0.3),
            (
                Reason("top_probability_below_min", 0.5, 0.6),
                Reason("normalized_entropy_above_max", 1.5 * math.log(2) / math.log(3), 0.9),
                Reason("label_mass_below_min", 0.25, 0.3),
            ),
        ),
    ],
)
def test_a_reading_beyond_a_limit_is_an_abstention_that_gives_value_and_limit(
    limits: Limits, reasons: tuple[Reason, ...]
) -> None:
    answer = answer_to(replace(TEAM, limits=limits), (0.5, 0.25, 0.25), mass=0.25)
    assert ("abstained" if reasons else "decided") == answer.status
    assert [(r.code, r.limit) for r in reasons] == [(r.code, r.limit) for r in answer.reasons]
    assert [r.value for r in reasons] == pytest.approx([r.value for r in answer.reasons])
    assert 0 == answer.option
    assert 0.5 == pytest.approx(answer.headline)


def test_a_reading_at_its_limits_breaks_none() -> None:
    believed = (0.5, 0.3, 0.2)
    reading = answer_to(TEAM, believed, mass=0.3).distribution
    exactly = Limits(reading.top_probability, reading.normalized_entropy, reading.label_mass)
    assert "decided" == answer_to(replace(TEAM, limits=exactly), believed, mass=0.3).status


def test_limits_at_the_ends_of_their_range_never_abstain() -> None:
    levels = Score(None, tuple("abcde"), limits=Limits(0.0, 1.0, 0.0))
    assert "decided" == answer_to(levels, (0.2,) * 5, mass=1e-300).status


def decided_with_mass(question: Question, mass: float | None) -> Decision:
    """Conclude a certain reading whose label mass is exactly this."""
    questions = schema(q=question)
    compiled = plan(questions)
    _, reading = read_with(compiled.groups[0], AUTO, [[(1.0, 0.0)]])
    weighed = replace(reading, draws=((replace(reading.draws[0][0], label_mass=mass),),))
    return concluded(questions, compiled, [weighed])


def test_an_unknown_label_mass_breaks_no_limit() -> None:
    question = replace(URGENT, limits=Limits(min_label_mass=1.0))
    statuses = [decided_with_mass(question, mass).answers["q"].status for mass in (0.5, None)]
    assert ["abstained", "decided"] == statuses


@pytest.mark.parametrize(("mass", "codes"), [(0.0499, ["low_label_mass"]), (LOW_LABEL_MASS, []), (None, [])])
def test_a_label_mass_is_low_only_where_it_is_known_and_below_the_bound(
    mass: float | None, codes: list[str]
) -> None:
    assert codes == [warning.code for warning in decided_with_mass(URGENT, mass).warnings]


def test_decisions_of_certain_readings_have_no_warnings() -> None:
    assert () == answers_with(TRIAGE, CERTAIN).warnings


@pytest.mark.parametrize(
    ("threshold", "draws", "warned"),
    [
        (0.5, [0.4, 0.6], True),
        (0.5, [0.6], False),
        (0.5, [0.9, 0.91, 0.92], False),
        (0.0, [0.0, 0.1], False),  # the interval begins at the threshold
        (1.0, [0.9, 1.0], False),  # or ends there
        (0.9, [0.9, 0.9], False),
    ],
)
def test_a_threshold_inside_the_interval_is_told(threshold: float, draws: list[float], warned: bool) -> None:
    questions = schema(q=Noul("?", threshold=threshold))
    warnings = answers_with(questions, *[[(p, 1 - p)] for p in draws]).warnings
    assert (["threshold_within_noise"] if warned else []) == [warning.code for warning in warnings]
    assert {warning.question for warning in warnings} <= {"q"}


def test_only_nouls_have_a_threshold_to_warn_about() -> None:
    draws = [[(0.4, 0.3, 0.3), (0.3, 0.4, 0.3)], [(0.3, 0.4, 0.3), (0.4, 0.3, 0.3)]]
    assert () == answers_with(schema(team=TEAM, severity=BAD), *draws).warnings


@pytest.mark.parametrize(
    ("mass", "top", "expected"),
    [
        (LOW_LABEL_MASS * 1.01, 22, None),
        (0.012, 22, "The labels hold 0.012 of the probability; the model's own first choice was 'compute'."),
        (0.012, 23, "The labels hold 0.012 of the probability; the model's own first choice was ' compute'."),
        (0.012, None, "The labels hold 0.012 of the probability."),
    ],
)
def test_labels_that_hold_little_are_told_with_the_token_that_was_preferred(
    mass: float, top: int | None, expected: str | None
) -> None:
    warnings = answers_with(schema(q=URGENT), [(1.0, 0.0)], mass=mass, top=top).warnings
    assert [("low_label_mass", "q", expected)] * bool(expected) == [
        (warning.code, warning.question, warning.message) for warning in warnings
    ]


def test_aliases_that_nobody_asked_for_are_told() -> None:
    odd = Choice(None, (("x-ray", None), ("yes", None)))
    mapped = replace(odd, aliases=(("x-ray", "low"),))
    warnings = answers_with(schema(odd=odd, mapped=mapped), ((1.0, 0.0), (1.0, 0.0))).warnings
    assert [("alias_used", "odd")] == [(warning.code, warning.question) for warning in warnings]


def test_skipped_reads_are_told_for_the_whole_decision() -> None:
    reading = doubtful_then(lambda _: ReadsSkipped("the deadline was near"))
    decision = concluded(TRIAGE, TRIAGE_PLAN, [reading])
    [warning] = decision.warnings
    assert ("extra_reads_skipped", None) == (warning.code, warning.question)
    assert "The answer rests on one draw: the deadline was near." == warning.message
    assert () == decision.extended_by
    assert 1 == decision.answers["team"].draws


def test_a_decision_names_the_questions_that_made_more_draws() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="all"))
    believed = [(0.5, 0.5), (0.0, 1.0, 0.0), (0.4, 0.3, 0.3)]
    readings = [
        read_with(group, AUTO, [[p]] * 4)[1] for group, p in zip(compiled.groups, believed, strict=True)
    ]
    decision = concluded(TRIAGE, compiled, readings)
    assert ("urgent", "severity") == decision.extended_by
    assert [4, 1, 4] == [answer.draws for answer in decision.answers.values()]
    assert 9 == len(decision.reads)


def test_groups_may_be_concluded_in_any_order() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="all"))
    readings = [read_with(group, AUTO, [[p]])[1] for group, p in zip(compiled.groups, CERTAIN, strict=True)]
    forwards, backwards = (concluded(TRIAGE, compiled, order) for order in (readings, readings[::-1]))
    assert forwards.answers == backwards.answers
    assert list(forwards.answers) == list(backwards.answers) == ["urgent", "team", "severity"]
