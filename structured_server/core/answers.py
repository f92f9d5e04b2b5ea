"""One question's answer: its draws pooled, its number described, its limits held against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from structured_server.core import distribution as d
from structured_server.core.distribution import Distribution
from structured_server.core.prompt import Asked
from structured_server.core.questions import Limits, Noul, Question, Score

LOW_LABEL_MASS = 0.05

Status = Literal["decided", "abstained"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a question was not decided: the limit that its reading broke, or the answer that it waited for.

    `question` is the one that did not have any of the answers in `limit`, where that is the reason.
    """

    code: str
    value: float | str | None
    limit: float | list[str]
    question: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionWarning:
    """Something the caller should know; `question` is None where it concerns the whole decision."""

    code: str
    message: str
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One question's reading, pooled over the draws.

    `headline` is the number that the draws' spread describes: P(yes) of a noul, the probability of the
    chosen option, the score. `standard_error` and `interval_95` are in its unit and None with one draw.
    `agreement` is the share of draws that come to the same option. `orders` is in how many orders the options
    were read, `order_spread` how far apart that put an option's probability: the largest range of any.
    """

    question: Question
    distribution: Distribution
    headline: float
    draws: int
    agreement: float
    standard_error: float | None
    interval_95: tuple[float, float] | None
    first_entropy: float
    reasons: tuple[Reason, ...]
    orders: int = 1
    order_spread: float | None = None

    @property
    def status(self) -> Status:
        """Whether code may act on the answer."""
        return "abstained" if self.reasons else "decided"

    @property
    def option(self) -> int:
        """The index of the option that the reading comes to: for a noul 0 (yes) from its threshold up."""
        return _option(self.question, self.distribution)

    @property
    def key(self) -> str:
        """The key of that option."""
        return self.question.options[self.option].key


@dataclass(frozen=True, slots=True)
class Skipped:
    """A question that was not asked, because another one did not have the answer that it waited for."""

    status: ClassVar[Literal["skipped"]] = "skipped"

    question: Question
    reason: Reason


Answers = Mapping[str, Answer | Skipped]


def fold_draws(
    question: Question, draws: Sequence[Distribution], *, first_entropy: float, orders: int = 1
) -> Answer:
    """Pool the draws of one question and describe what they say."""
    pooled = d.pool(draws)
    option = _option(question, pooled)
    upper = 1.0
    if isinstance(question, Score):
        headline = d.expectation(pooled.probabilities)
        values = [d.expectation(draw.probabilities) for draw in draws]
        upper = len(pooled.probabilities) - 1.0
    else:
        index = 0 if isinstance(question, Noul) else option
        headline = pooled.probabilities[index]
        values = [draw.probabilities[index] for draw in draws]
    return Answer(
        question=question,
        distribution=pooled,
        headline=headline,
        draws=len(draws),
        agreement=sum(_option(question, draw) == option for draw in draws) / len(draws),
        standard_error=d.standard_error(values),
        interval_95=d.interval_95(values, upper=upper),
        first_entropy=first_entropy,
        reasons=tuple(_broken_limits(question.limits, pooled)),
        orders=orders,
        order_spread=d.largest_range(draws) if orders > 1 else None,
    )


def warnings_about(
    name: str, asked: Asked, answer: Answer, preferred: int | None, token_text: Callable[[int], str]
) -> Iterable[DecisionWarning]:
    """Yield what the caller should know about one answer; `preferred` is the id that the model liked best."""
    question, interval, mass = asked.question, answer.interval_95, answer.distribution.label_mass
    if isinstance(question, Noul) and interval and interval[0] < question.threshold < interval[1]:
        yield DecisionWarning(
            "threshold_within_noise",
            f"The threshold {question.threshold:g} lies inside the interval that slot noise alone explains.",
            name,
        )
    if mass is not None and mass < LOW_LABEL_MASS:
        instead = "" if preferred is None else f"; the model's own first choice was {token_text(preferred)!r}"
        yield DecisionWarning(
            "low_label_mass", f"The labels hold {mass:.2g} of the probability{instead}.", name
        )
    if asked.aliased:
        yield DecisionWarning(
            "alias_used", "Some option is no single token, so letters or digits stood for all of them.", name
        )


def _broken_limits(limits: Limits, reading: Distribution) -> Iterable[Reason]:
    """Yield each limit that the reading breaks; a label mass that is unknown breaks none."""
    top, entropy, mass = reading.top_probability, reading.normalized_entropy, reading.label_mass
    if limits.min_top_probability is not None and top < limits.min_top_probability:
        yield Reason("top_probability_below_min", top, limits.min_top_probability)
    if limits.max_normalized_entropy is not None and entropy > limits.max_normalized_entropy:
        yield Reason("normalized_entropy_above_max", entropy, limits.max_normalized_entropy)
    if limits.min_label_mass is not None and mass is not None and mass < limits.min_label_mass:
        yield Reason("label_mass_below_min", mass, limits.min_label_mass)


def _option(question: Question, reading: Distribution) -> int:
    if isinstance(question, Noul):
        return 0 if reading.probabilities[0] >= question.threshold else 1
    return reading.mode
