"""Probabilities: what must hold of every distribution, and the statistics against scipy and numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import special, stats

from structured_server.core import distribution as d
from structured_server.core.distribution import Distribution, distribution
from structured_server.errors import UpstreamProtocolError
from tests.core.strategies import option_logprobs, probabilities, quick

INF = math.inf
values = st.lists(st.floats(0, 1), min_size=2, max_size=32)


@st.composite
def draws(draw: st.DrawFn) -> list[Distribution]:
    """Draw up to eight draws of one question."""
    size = draw(st.integers(2, 6))
    one = st.builds(Distribution, probabilities(size, size), st.floats(0, 1))
    return draw(st.lists(one, min_size=1, max_size=8))


@quick
@given(option_logprobs())
def test_probabilities_sum_to_one(logprobs: list[list[float]]) -> None:
    reading = distribution(logprobs)
    assert len(logprobs) == len(reading.probabilities)
    assert all(0 <= p <= 1 for p in reading.probabilities)
    assert math.fsum(reading.probabilities) == pytest.approx(1, abs=1e-9)


@quick
@given(option_logprobs(), st.floats(-30, 30))
def test_a_constant_added_to_all_log_probabilities_moves_only_the_label_mass(
    logprobs: list[list[float]], constant: float
) -> None:
    assume(max(map(max, logprobs)) > -900)
    plain, moved = distribution(logprobs), distribution([[v + constant for v in o] for o in logprobs])
    assert moved.probabilities == pytest.approx(plain.probabilities, abs=1e-9)
    total = special.logsumexp([v for option in logprobs for v in option]) + constant
    assert moved.label_mass == pytest.approx(min(1, math.exp(total)), rel=1e-9)


@quick
@given(option_logprobs(), st.randoms(use_true_random=False))
def test_the_order_of_options_and_variants_does_not_matter(
    logprobs: list[list[float]], random: np.random.Generator
) -> None:
    order = list(range(len(logprobs)))
    random.shuffle(order)
    plain = distribution(logprobs)
    permuted = distribution([logprobs[i][::-1] for i in order])
    assert permuted.probabilities == pytest.approx([plain.probabilities[i] for i in order], abs=1e-12)
    assert permuted.label_mass == pytest.approx(plain.label_mass)


@quick
@given(option_logprobs())
def test_a_distribution_is_the_softmax_of_each_options_summed_variants(logprobs: list[list[float]]) -> None:
    expected = special.softmax([special.logsumexp(option) for option in logprobs])
    assert distribution(logprobs).probabilities == pytest.approx(expected, abs=1e-12)


@quick
@given(option_logprobs())
def test_the_label_mass_is_a_share(logprobs: list[list[float]]) -> None:
    mass = distribution(logprobs).label_mass
    assert mass is not None
    assert 0 <= mass <= 1


@quick
@given(option_logprobs())
def test_the_label_mass_is_unknown_where_the_engine_normalised_over_the_labels(
    logprobs: list[list[float]],
) -> None:
    whole, constrained = distribution(logprobs), distribution(logprobs, whole_vocabulary=False)
    assert Distribution(whole.probabilities, None) == constrained


@pytest.mark.parametrize(
    ("logprobs", "expected", "mass"),
    [
        ([[math.log(0.5)], [math.log(0.25)]], (2 / 3, 1 / 3), 0.75),
        ([[math.log(0.2), math.log(0.3)], [math.log(0.5)]], (0.5, 0.5), 1.0),
        ([[0.0], [-INF]], (1.0, 0.0), 1.0),
        ([[0.0], [-9999.0]], (1.0, 0.0), 1.0),
        ([[-INF, -3.0], [-INF, -INF]], (1.0, 0.0), math.exp(-3)),
        ([[-999.0], [-999.0]], (0.5, 0.5), 0.0),
        ([[-1000.0], [-999.0 + math.log(0.5)]], (1 / (1 + math.e / 2), 1 / (1 + 2 / math.e)), 0.0),
        ([[0.0], [0.0]], (0.5, 0.5), 1.0),
    ],
    ids=str,
)
def test_known_log_probabilities_give_known_distributions(
    logprobs: list[list[float]], expected: tuple[float, ...], mass: float
) -> None:
    reading = distribution(logprobs)
    assert reading.probabilities == pytest.approx(expected, abs=1e-12)
    assert reading.label_mass == pytest.approx(mass)


@quick
@given(
    st.lists(
        st.lists(st.floats(max_value=-1000, allow_nan=False), min_size=1, max_size=3), min_size=2, max_size=5
    )
)
@example([[-INF], [-INF]])
@example([[-9999.0], [-9999.0]])
@example(
    [[-1000.0, -1000.0], [-1000.0]]
)  # variants add up to more than the floor, and hold nothing all the same
def test_labels_that_all_lie_at_the_floor_are_an_upstream_error(logprobs: list[list[float]]) -> None:
    with pytest.raises(UpstreamProtocolError, match="at or below -1000"):
        distribution(logprobs)


def test_one_label_above_the_floor_is_a_reading() -> None:
    assert 1.0 == distribution([[-999.9], [-9999.0]]).top_probability


@quick
@given(probabilities())
def test_entropy_lies_between_certain_and_uniform(p: tuple[float, ...]) -> None:
    reading = Distribution(p, None)
    assert 0 <= reading.entropy <= math.log(len(p))
    assert 0 <= reading.normalized_entropy <= 1
    assert reading.entropy == pytest.approx(stats.entropy(p), abs=1e-9)


@pytest.mark.parametrize("count", range(2, 300))
def test_uniform_is_never_more_than_all_the_entropy_there_is(count: int) -> None:
    uniform = distribution([[-1.0]] * count)
    assert uniform.normalized_entropy <= 1
    assert uniform.normalized_entropy == pytest.approx(1)


@pytest.mark.parametrize(
    ("p", "entropy", "normalized"),
    [
        ((1.0, 0.0), 0.0, 0.0),
        ((0.5, 0.5), math.log(2), 1.0),
        ((0.25, 0.25, 0.5, 0.0), 1.5 * math.log(2), 0.75),
        ((1.0,), 0.0, 0.0),
    ],
)
def test_known_entropies(p: tuple[float, ...], entropy: float, normalized: float) -> None:
    reading = Distribution(p, None)
    assert (reading.entropy, reading.normalized_entropy) == pytest.approx((entropy, normalized))


@pytest.mark.parametrize(
    ("p", "mode"), [((0.2, 0.5, 0.3), 1), ((0.4, 0.2, 0.4), 0), ((0.5, 0.5), 0), ((1.0,), 0)]
)
def test_the_mode_is_the_first_of_the_most_probable(p: tuple[float, ...], mode: int) -> None:
    reading = Distribution(p, None)
    assert (mode, max(p)) == (reading.mode, reading.top_probability)


@quick
@given(st.lists(st.floats(-700, 700) | st.just(-INF), min_size=1, max_size=8))
def test_log_sum_exp_equals_scipys(logs: list[float]) -> None:
    assert d.log_sum_exp(logs) == pytest.approx(special.logsumexp(logs), rel=1e-12, abs=1e-12)


@quick
@given(probabilities(), st.none() | st.floats(0, 1), st.integers(1, 32))
def test_pooling_equal_draws_changes_nothing(p: tuple[float, ...], mass: float | None, count: int) -> None:
    pooled = d.pool([Distribution(p, mass)] * count)
    assert pooled.probabilities == pytest.approx(p, abs=1e-12)
    assert pooled.label_mass == (None if mass is None else pytest.approx(mass))


def test_a_single_draw_is_pooled_to_itself() -> None:
    draw = Distribution((0.1, 0.2, 0.7), 0.3)
    assert d.pool([draw]) is draw


@quick
@given(draws())
def test_pooling_is_the_mean_of_the_draws(drawn: list[Distribution]) -> None:
    pooled = d.pool(drawn)
    assert pooled.probabilities == pytest.approx(np.mean([one.probabilities for one in drawn], axis=0))
    assert pooled.label_mass == pytest.approx(np.mean([one.label_mass or 0.0 for one in drawn]))
    assert math.fsum(pooled.probabilities) == pytest.approx(1, abs=1e-9)


@quick
@given(draws())
def test_the_order_of_draws_does_not_matter(drawn: list[Distribution]) -> None:
    assert d.pool(drawn).probabilities == pytest.approx(d.pool(drawn[::-1]).probabilities, abs=1e-12)


def test_a_label_mass_that_one_draw_does_not_know_is_unknown() -> None:
    assert d.pool([Distribution((0.5, 0.5), 0.4), Distribution((0.5, 0.5), None)]).label_mass is None


def test_the_expectation_counts_levels_from_zero() -> None:
    assert 1.6 == pytest.approx(d.expectation((0.1, 0.2, 0.7)))


@quick
@given(values)
def test_the_standard_error_equals_scipys(numbers: list[float]) -> None:
    assert d.standard_error(numbers) == pytest.approx(stats.sem(numbers), abs=1e-12)


@quick
@given(values, st.sampled_from([1.0, 3.0]))
def test_the_interval_is_students_clipped(numbers: list[float], upper: float) -> None:
    scaled = [upper * number for number in numbers]
    error = np.std(scaled, ddof=1) / math.sqrt(len(scaled))
    half = stats.t.ppf(0.975, len(scaled) - 1) * error
    expected = np.clip([np.mean(scaled) - half, np.mean(scaled) + half], 0, upper)
    interval = d.interval_95(scaled, upper=upper)
    assert interval == pytest.approx(expected, abs=1e-9)
    assert interval is not None
    assert 0 <= interval[0] <= interval[1] <= upper


def test_an_interval_wider_than_the_scale_is_the_scale() -> None:
    assert (0.0, 1.0) == d.interval_95([0.0, 1.0])
    assert (0.0, 3.0) == d.interval_95([0.0, 3.0], upper=3.0)


def test_one_draw_tells_nothing_about_noise() -> None:
    assert (None, None) == (d.standard_error([0.4]), d.interval_95([0.4]))


@pytest.mark.parametrize("freedom", range(1, 32))
def test_the_quantiles_are_students(freedom: int) -> None:
    assert 31 == len(d.STUDENT_T_975)
    assert d.STUDENT_T_975[freedom - 1] == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-14)


def system_one_choice(p: Sequence[float]) -> float:
    """System One's confidence in a choice, as its formula is written."""
    chance = 1 / len(p)
    return float((np.max(p) - chance) / (1 - chance))


def system_one_score(p: Sequence[float]) -> float:
    """System One's confidence in a score, as its formula is written."""
    levels = np.arange(len(p))
    from_mode = np.sum(np.array(p) * np.abs(levels - np.argmax(p)))
    from_middle = np.mean(np.abs(levels - (len(p) - 1) / 2))
    return float(max(0, 1 - from_mode / from_middle))


@quick
@given(probabilities(most=26))
def test_confidences_equal_system_ones(p: tuple[float, ...]) -> None:
    assert d.choice_confidence(p) == pytest.approx(system_one_choice(p), abs=1e-12)
    assert d.score_confidence(p) == pytest.approx(system_one_score(p), abs=1e-12)
    assert 0 <= d.choice_confidence(p) <= 1
    assert 0 <= d.score_confidence(p) <= 1


@pytest.mark.parametrize("count", range(2, 27))
def test_confidence_is_0_for_uniform_and_1_for_certain(count: int) -> None:
    uniform = (1 / count,) * count
    certain = (1.0, *(0.0,) * (count - 1))
    for confidence in (d.choice_confidence, d.score_confidence):
        assert confidence(uniform) == pytest.approx(0)
        assert confidence(certain) == confidence(certain[::-1]) == 1


@pytest.mark.parametrize("confidence", [d.choice_confidence, d.score_confidence])
def test_the_only_option_has_full_confidence(confidence: type[float]) -> None:
    assert 1.0 == confidence((1.0,))  # type: ignore[arg-type]


def test_the_example_of_the_wire_format_has_its_confidence() -> None:
    assert 0.8375 == pytest.approx(d.choice_confidence((0.06, 0.87, 0.05, 0.012, 0.008)))


@quick
@given(option_logprobs(), st.floats(0.05, 20))
def test_a_temperature_is_a_divisor_on_the_options_logs(
    logprobs: list[list[float]], temperature: float
) -> None:
    sums = np.array([special.logsumexp(option) for option in logprobs])
    heated = distribution(logprobs, temperature=temperature)
    assert heated.probabilities == pytest.approx(special.softmax(sums / temperature), abs=1e-9)
    assert heated.label_mass == distribution(logprobs).label_mass


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e9])
def test_extreme_temperatures_give_the_top_option_or_all_alike(temperature: float) -> None:
    heated = distribution([[-300.0], [-302.0], [-math.inf]], temperature=temperature)
    expected = (1.0, 0.0, 0.0) if temperature < 1 else (0.5, 0.5, 0.0)
    assert expected == pytest.approx(heated.probabilities)


@quick
@given(probabilities())
def test_probabilities_that_sum_to_one_come_back_exactly_enough_to_meet_a_threshold(
    p: tuple[float, ...],
) -> None:
    logs = [[math.log(each)] if each else [-INF] for each in p]
    assert distribution(logs).probabilities == pytest.approx(p, rel=1e-14, abs=0)


@quick
@given(draws())
def test_the_largest_range_is_that_of_the_option_that_moves_most(drawn: list[Distribution]) -> None:
    ranges = np.ptp(np.array([one.probabilities for one in drawn]), axis=0)
    assert d.largest_range(drawn) == pytest.approx(max(ranges))
