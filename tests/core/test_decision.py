"""The decision: what is made of the readings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core import distribution as d
from structured_server.core.answers import LOW_LABEL_MASS, Answer, Reason, Skipped
from structured_server.core.decision import Decision, conclude
from structured_server.core.plan import ReadOptions
from structured_server.core.policy import Calibration, FittedPolicy, ReadPolicy
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.reading import ReadsSkipped, read_group
from structured_server.core.reads import Thought
from structured_server.core.stage import answers_of
from tests.core.strategies import probabilities, quick, schemas
from tests.core.synthetic import TOY, answers, concluded, drive, job, plan, read_with, saying, schema
from tests.core.triage import AUTO, BAD, CERTAIN, TEAM, TRIAGE, TRIAGE_PLAN, URGENT, Believed, doubtful_then


def answers_with(questions: Schema, *draws: Believed, mass: float = 1.0, top: int | None = None) -> Decision:
    """Decide questions that share a canvas, with one draw for each of the replies."""
    compiled = plan(questions)
    [group] = compiled.groups
    said = iter(draws)
    _, reading = drive(
        read_group(job(group), ReadPolicy(samples=len(draws))),
        lambda batch: [saying(group, *next(said), mass=mass, top=top) for _ in batch.requests],
    )
    return concluded(compiled, [reading])


def answer_to(question: Question, *draws: Sequence[float], mass: float = 1.0) -> Answer:
    """Answer one question read alone."""
    return answers(answers_with(schema(q=question), *[[draw] for draw in draws], mass=mass))["q"]


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
    return questions, concluded(compiled, readings)


@quick
@given(decisions())
def test_answers_come_in_the_callers_order_and_to_every_question(drawn: tuple[Schema, Decision]) -> None:
    questions, decision = drawn
    asked = [(name, answer.question) for name, answer in decision.answers.items()]
    assert list(questions.questions) == asked


@quick
@given(decisions())
def test_every_answer_is_sound(drawn: tuple[Schema, Decision]) -> None:
    for answer in answers(drawn[1]).values():
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
        answer.draws for answer in answers(decision).values()
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
    urgent, team, severity = answers(decision).values()
    assert [0.7, 0.7, 1.5] == pytest.approx([urgent.headline, team.headline, severity.headline])
    assert [0, 1, 2] == [urgent.option, team.option, severity.option]
    assert {(1, 1.0, None, None, "decided")} == {
        (a.draws, a.agreement, a.standard_error, a.interval_95, a.status) for a in answers(decision).values()
    }
    assert [0.8] * 3 == pytest.approx([a.distribution.label_mass for a in answers(decision).values()])


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
    return concluded(compiled, [weighed])


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
    decision = concluded(TRIAGE_PLAN, [reading])
    [warning] = decision.warnings
    assert ("extra_reads_skipped", None) == (warning.code, warning.question)
    assert "The answer rests on one draw: the deadline was near." == warning.message
    assert () == decision.extended_by
    assert 1 == answers(decision)["team"].draws


def test_a_decision_names_the_questions_that_made_more_draws() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="all"))
    believed = [(0.5, 0.5), (0.0, 1.0, 0.0), (0.4, 0.3, 0.3)]
    readings = [
        read_with(group, AUTO, [[p]] * 4)[1] for group, p in zip(compiled.groups, believed, strict=True)
    ]
    decision = concluded(compiled, readings)
    assert ("urgent", "severity") == decision.extended_by
    assert [4, 1, 4] == [answer.draws for answer in answers(decision).values()]
    assert 9 == len(decision.reads)


def test_groups_may_be_concluded_in_any_order() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="all"))
    readings = [read_with(group, AUTO, [[p]])[1] for group, p in zip(compiled.groups, CERTAIN, strict=True)]
    forwards, backwards = (concluded(compiled, order) for order in (readings, readings[::-1]))
    assert forwards.answers == backwards.answers
    assert list(forwards.answers) == list(backwards.answers) == ["urgent", "team", "severity"]


def test_thoughts_are_named_by_the_questions_that_they_were_about() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="noul"))
    thought = Thought((5, 6), "hm", closed=True, seconds=0.5)
    readings = [
        read_with(group, AUTO, [[(1.0, *(0.0,) * (len(s.options) - 1)) for s in group.canvas.slots]])[1]
        for group in compiled.groups
    ]
    assert () == concluded(compiled, readings).thoughts
    readings[1] = replace(readings[1], job=replace(readings[1].job, thought=thought))
    assert ((("team", "severity"), thought),) == concluded(compiled, readings).thoughts


@pytest.mark.parametrize("match", [True, False, None])
def test_a_policy_that_was_fitted_for_other_decisions_is_told_once(match: bool | None) -> None:
    [reading] = [read_with(group, AUTO, [CERTAIN])[1] for group in TRIAGE_PLAN.groups]
    calibration = None if match is None else Calibration(FittedPolicy("ours", "fp_12345678"), match)
    decision = conclude(TRIAGE_PLAN, [reading], answers_of(reading), TOY.token_text, calibration=calibration)
    message = "The policy ours was fitted for other decisions (fp_12345678); nothing of it was applied."
    expected = [("policy_mismatch", message, None)] if match is False else []
    assert expected == [(each.code, each.message, each.question) for each in decision.warnings]
    assert calibration == decision.calibration


def test_a_question_that_was_not_asked_is_concluded_as_skipped() -> None:
    compiled = plan(TRIAGE, ReadOptions(isolate="all"))
    readings = [read_with(group, AUTO, [[p]])[1] for group, p in zip(compiled.groups, CERTAIN, strict=True)]
    skipped = Skipped(TEAM, Reason("ask_if_not_met", "true", ["false"], "urgent"))
    found: dict[str, Answer | Skipped] = {
        **answers_of(readings[2]),
        "team": skipped,
        **answers_of(readings[0]),
    }
    decision = conclude(compiled, [readings[2], readings[0]], found, TOY.token_text)
    assert ["urgent", "team", "severity"] == list(decision.answers)
    assert skipped is decision.answers["team"]
    assert ("skipped", 2) == (skipped.status, len(decision.reads))
