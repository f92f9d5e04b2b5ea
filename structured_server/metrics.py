"""Prometheus metrics. Names start with `structured_server_`; no label value comes from a caller."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from structured_server.admission import Admission
from structured_server.core.answers import Skipped
from structured_server.core.decision import Decision

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 4, 8, 16)
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class Metrics:
    """All metrics of one server, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.requests = Counter(
            "structured_server_requests", "HTTP requests.", ["route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "structured_server_request_seconds",
            "Time from request to response.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.decisions = Counter(
            "structured_server_decisions", "Decisions made.", ["extended"], registry=registry
        )
        self.shared_decisions = Counter(
            "structured_server_shared_decisions",
            "Decisions that took the answer of an equal one in flight.",
            registry=registry,
        )
        self.answers = Counter(
            "structured_server_answers", "Answers given.", ["type", "status"], registry=registry
        )
        self.normalized_entropy = Histogram(
            "structured_server_normalized_entropy",
            "Entropy of answers: 0 certain, 1 uniform.",
            ["type"],
            buckets=SHARES,
            registry=registry,
        )
        self.label_mass = Histogram(
            "structured_server_label_mass", "Probability on the labels.", buckets=SHARES, registry=registry
        )
        self.reads = Counter(
            "structured_server_reads", "Reads sent to the engine.", ["kind"], registry=registry
        )
        self.thoughts = Counter(
            "structured_server_thoughts", "Thoughts that the model wrote.", registry=registry
        )
        self.batch_seconds = Histogram(
            "structured_server_batch_seconds",
            "Engine time of a batch of parallel reads.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "structured_server_queue_seconds", "Wait for a permit.", buckets=SECONDS, registry=registry
        )
        self.permits = Gauge(
            "structured_server_permits_in_use", "Permits that are out.", ["unit"], registry=registry
        )
        self.permit_capacity = Gauge(
            "structured_server_permits", "Permits that there are.", ["unit"], registry=registry
        )
        self.waiting = Gauge(
            "structured_server_waiting_batches", "Batches of reads that wait for a permit.", registry=registry
        )
        self.upstream_errors = Counter(
            "structured_server_upstream_errors", "Failed reads.", ["kind"], registry=registry
        )
        self.refused = Counter(
            "structured_server_refused", "Requests refused for now.", ["reason"], registry=registry
        )
        self.skipped_extra_reads = Counter(
            "structured_server_skipped_extra_reads", "Extra reads that did not come back.", registry=registry
        )
        self.ready = Gauge("structured_server_ready", "1 while the engine is ready.", registry=registry)
        self.engine_losses = Counter(
            "structured_server_engine_losses", "Times that a ready engine was lost.", registry=registry
        )

    def watch_admission(self, admission: Admission) -> None:
        """Read permits and queue from the admission whenever metrics are scraped."""
        self.permits.labels("positions").set_function(lambda: admission.in_use.positions)
        self.permits.labels("reads").set_function(lambda: admission.in_use.reads)
        self.permit_capacity.labels("positions").set(admission.capacity.positions)
        self.permit_capacity.labels("reads").set(admission.capacity.reads)
        self.waiting.set_function(lambda: admission.waiting)

    def observe(self, decision: Decision, *, shared: bool = False) -> None:
        """Count a decision and what its answers look like; one that shared its reads counts only as such."""
        if shared:
            self.shared_decisions.inc()
            return
        self.decisions.labels("true" if decision.extended_by else "false").inc()
        for answer in decision.answers.values():
            kind = answer.question.kind
            self.answers.labels(kind, answer.status).inc()
            if isinstance(answer, Skipped):
                continue
            self.normalized_entropy.labels(kind).observe(answer.distribution.normalized_entropy)
            if answer.distribution.label_mass is not None:
                self.label_mass.observe(answer.distribution.label_mass)
        for reading in decision.readings:
            if reading.skipped is not None:
                self.skipped_extra_reads.inc()

    def render(self) -> bytes:
        """Return all metrics in the text format that Prometheus scrapes."""
        return generate_latest(self.registry)
