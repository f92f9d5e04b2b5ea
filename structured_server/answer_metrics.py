"""What answers look like, as metrics: by type, and by id for questions that the operator names."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from structured_server.core.answers import Answer, Skipped
from structured_server.histogram import Histogram

SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
NATS = (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6)
MOST_OPTIONS = 32
OTHER = "other"
"""Stands for the options of a named question beyond the first so many: callers choose what they are."""

KINDS = ("noul", "choice", "score")


class _Sureness:
    """Four histograms under one set of label values, looked up once."""

    def __init__(self, histograms: Iterable[Histogram], *labels: str) -> None:
        self._entropy, self._first, self._top, self._mass = (each.labels(*labels) for each in histograms)

    def observe(self, answer: Answer) -> None:
        """Count one answer."""
        reading = answer.distribution
        self._entropy.observe(reading.normalized_entropy)
        self._first.observe(answer.first_entropy)
        self._top.observe(reading.top_probability)
        if reading.label_mass is not None:
            self._mass.observe(reading.label_mass)


class AnswerMetrics:
    """Counts answers. Only ids in `questions` become label values; all others are counted by type alone.

    The names of a named question's options become label values too, the first 32 that come. Whoever names a
    question says that these are no secret.
    """

    def __init__(self, registry: CollectorRegistry, questions: Iterable[str] = ()) -> None:
        self._answers = Counter(
            "structured_server_answers", "Answers given.", ["type", "status"], registry=registry
        )
        self._counts: dict[tuple[str, str], Counter] = {}
        by_type = self._histograms("structured_server_", "of answers", ["type"], registry)
        self._by_type = {kind: _Sureness(by_type, kind) for kind in KINDS}
        named = tuple(questions)
        by_question = self._histograms(
            "structured_server_question_", "of named questions' answers", ["question"], registry
        )
        self._by_question = {name: _Sureness(by_question, name) for name in named}
        self._mix = Counter(
            "structured_server_question_answers",
            "Answers of named questions, by option; abstained and skipped ones by what they are.",
            ["question", "answer"],
            registry=registry,
        )
        self._known: dict[str, set[str]] = {name: set() for name in named}

    def observe(self, name: str, answer: Answer | Skipped) -> None:
        """Count the answer to one question."""
        kind = answer.question.kind
        key = (kind, answer.status)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self._answers.labels(*key)
        count.inc()
        if isinstance(answer, Answer):
            self._by_type[kind].observe(answer)
        if name in self._known:
            self._observe_named(name, answer)

    def _observe_named(self, name: str, answer: Answer | Skipped) -> None:
        if isinstance(answer, Answer):
            self._by_question[name].observe(answer)
        said = answer.key if isinstance(answer, Answer) and answer.status == "decided" else answer.status
        known = self._known[name]
        if said not in known and len(known) >= MOST_OPTIONS:
            said = OTHER
        known.add(said)
        self._mix.labels(name, said).inc()

    @staticmethod
    def _histograms(
        prefix: str, what: str, labels: list[str], registry: CollectorRegistry
    ) -> tuple[Histogram, ...]:
        described = {
            "normalized_entropy": f"Entropy {what}: 0 certain, 1 uniform.",
            "first_entropy_nats": f"Entropy {what} on the first draw, in nats.",
            "top_probability": f"Probability of the likeliest option {what}.",
            "label_mass": f"Probability on the labels {what}.",
        }
        return tuple(
            Histogram(
                prefix + name,
                text,
                labels,
                buckets=NATS if name.endswith("_nats") else SHARES,
                registry=registry,
            )
            for name, text in described.items()
        )
