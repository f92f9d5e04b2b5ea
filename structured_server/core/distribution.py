"""Probabilities: from log-probabilities to distributions, and what several draws tell about them.

Entropies are in nats. Probabilities are never rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from structured_server.errors import UpstreamProtocolError

FLOOR = -1000.0
"""A slot whose labels all lie at or below this log-probability holds no information."""

# Two-sided 95 % quantiles of Student's t for 1 to 31 degrees of freedom (2 to 32 draws).
STUDENT_T_975 = (
    12.706204736174694, 4.302652729749462, 3.182446305283708, 2.776445105197793, 2.570581835636315,
    2.446911851144979, 2.364624251592784, 2.306004135204166, 2.262157162798205, 2.228138851986274,
    2.200985160091639, 2.178812829667228, 2.160368656462791, 2.144786687917804, 2.131449545559776,
    2.119905299221255, 2.109815577833316, 2.100922040241038, 2.093024054408309, 2.085963447265864,
    2.079613844727680, 2.073873067904025, 2.068657610419049, 2.063898561628025, 2.059538552753297,
    2.055529438642874, 2.051830516480285, 2.048407141795245, 2.045229642132703, 2.042272456301238,
    2.039513446396408,
)  # fmt: skip


@dataclass(frozen=True)
class Distribution:
    """Probabilities over a question's options, sum 1, and the label mass: their share of the vocabulary.

    `label_mass` is None where the engine normalised over the labels itself.
    """

    probabilities: tuple[float, ...]
    label_mass: float | None

    @cached_property
    def mode(self) -> int:
        """The index of the most probable option; ties go to the lowest."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @cached_property
    def top_probability(self) -> float:
        """The largest probability."""
        return max(self.probabilities)

    @cached_property
    def entropy(self) -> float:
        """Shannon entropy in nats."""
        return entropy(self.probabilities)

    @cached_property
    def normalized_entropy(self) -> float:
        """Entropy over its largest possible value, ln K: 0 certain, 1 uniform."""
        return self.entropy / math.log(len(self.probabilities)) if len(self.probabilities) > 1 else 0.0


def log_sum_exp(values: Sequence[float]) -> float:
    """Return ln(sum(exp(v))) without overflow; -inf for values that are all -inf."""
    if len(values) == 1:
        return values[0]
    largest = max(values)
    if largest == -math.inf:
        return largest
    if len(values) == 2:  # a label and one variant, mostly
        return largest + math.log1p(math.exp(min(values) - largest))
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def distribution(
    option_logprobs: Sequence[Sequence[float]], *, whole_vocabulary: bool = True, temperature: float = 1.0
) -> Distribution:
    """Fold the log-probabilities of each option's label and variants into one distribution.

    Variants add up by log-sum-exp; the options are then normalised against each other, their logs divided
    by the temperature. The label mass is what they had before that, which has a meaning only where the
    engine normalised over the vocabulary.

    Raises:
        UpstreamProtocolError: every label lies at or below `FLOOR`.
    """
    if max(map(max, option_logprobs)) <= FLOOR:
        raise UpstreamProtocolError(f"every label of a slot has a log-probability at or below {FLOOR:g}.")
    logs = [log_sum_exp(values) for values in option_logprobs]
    total = log_sum_exp(logs)
    # Without a temperature, the total rounds less; a small one would take every weight below it to 0.
    pivot = total if temperature == 1 else max(logs)
    weights = [math.exp((log - pivot) / temperature) for log in logs]
    scale = math.fsum(weights)
    probabilities = tuple(weight / scale for weight in weights)
    return Distribution(probabilities, min(1.0, math.exp(total)) if whole_vocabulary else None)


def entropy(probabilities: Sequence[float]) -> float:
    """Return the Shannon entropy in nats, from 0 to ln K: rounding takes it beyond neither."""
    nats = -math.fsum(p * math.log(p) for p in probabilities if p > 0)
    return min(max(0.0, nats), math.log(len(probabilities)))


def pool(draws: Sequence[Distribution]) -> Distribution:
    """Average draws with equal weights, label mass likewise."""
    if len(draws) == 1:
        return draws[0]
    columns = zip(*(draw.probabilities for draw in draws), strict=True)
    means = [math.fsum(column) / len(draws) for column in columns]
    scale = math.fsum(means)
    masses = [draw.label_mass for draw in draws if draw.label_mass is not None]
    mass = math.fsum(masses) / len(draws) if len(masses) == len(draws) else None
    return Distribution(tuple(mean / scale for mean in means), mass)


def largest_range(draws: Sequence[Distribution]) -> float:
    """Return how far apart the draws put an option's probability: the largest such range of any option."""
    columns = zip(*(draw.probabilities for draw in draws), strict=True)
    ranges: list[float] = [max(column) - min(column) for column in columns]
    return max(ranges)


def expectation(probabilities: Sequence[float]) -> float:
    """Return the mean level index, from 0 to K - 1."""
    return math.fsum(index * p for index, p in enumerate(probabilities))


def standard_error(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (ddof 1) over sqrt(n); None for a single value."""
    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)


def interval_95(values: Sequence[float], *, upper: float = 1.0) -> tuple[float, float] | None:
    """Return Student's t interval of the mean, clipped to [0, upper]; None for a single value.

    It covers the slot noise between draws and nothing else; in particular it says nothing about calibration.
    """
    error = standard_error(values)
    if error is None:
        return None
    mean = math.fsum(values) / len(values)
    half = STUDENT_T_975[len(values) - 2] * error
    return max(0.0, mean - half), min(upper, mean + half)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Return (max - 1/n) / (1 - 1/n): 0 for uniform, 1 for certain. System One's formula."""
    n = len(probabilities)
    return 1.0 if n == 1 else max(0.0, (max(probabilities) - 1 / n) / (1 - 1 / n))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return max(0, 1 - E|i - mode| / D), D the mean |i - (n - 1) / 2|. System One's formula."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    mode = max(range(n), key=probabilities.__getitem__)
    spread = math.fsum(p * abs(index - mode) for index, p in enumerate(probabilities))
    uniform = math.fsum(abs(index - (n - 1) / 2) for index in range(n)) / n
    return max(0.0, 1 - spread / uniform)
