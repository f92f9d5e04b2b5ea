"""Prometheus metrics. Names start with `structured_server_`; no label value comes from a caller.

Those of API keys are the names in the keys file.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from structured_server.admission import Admission
from structured_server.answer_metrics import AnswerMetrics
from structured_server.breaker import State
from structured_server.core.decision import Decision
from structured_server.histogram import Histogram

if TYPE_CHECKING:
    from structured_server.backends.vllm.replica import Replica

BREAKER_STATES: tuple[State, ...] = get_args(State)
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 4, 8, 16)


class Metrics:
    """All metrics of one server, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, questions: Iterable[str] = ()) -> None:
        """Name these questions' answers by their ids."""
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
        self._made = {extended: self.decisions.labels(str(extended).lower()) for extended in (False, True)}
        self.outcomes = Counter(
            "structured_server_outcomes",
            "Answers sent: all questions decided, or some of them undecided.",
            ["route", "outcome"],
            registry=registry,
        )
        self.shared_decisions = Counter(
            "structured_server_shared_decisions",
            "Decisions that took the answer of an equal one in flight.",
            registry=registry,
        )
        self.answers = AnswerMetrics(registry, questions)
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
        self.tokenise_seconds = Histogram(
            "structured_server_tokenise_seconds",
            "Making prompts of a state, measuring and cutting it included.",
            buckets=SHORT_SECONDS,
            registry=registry,
        )
        self.fold_seconds = Histogram(
            "structured_server_fold_seconds",
            "Making answers of what was read.",
            buckets=SHORT_SECONDS,
            registry=registry,
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
        self.retries = Counter(
            "structured_server_retries", "Attempts made again after a failure.", registry=registry
        )
        self.upstream_ready = Gauge(
            "structured_server_upstream_ready",
            "1 while this engine is ready.",
            ["upstream"],
            registry=registry,
        )
        self.upstream_breaker = Gauge(
            "structured_server_upstream_breaker",
            "1 for the state that this engine's circuit breaker is in.",
            ["upstream", "state"],
            registry=registry,
        )
        self.upstream_positions = Gauge(
            "structured_server_upstream_positions",
            "Canvas positions in flight at this engine.",
            ["upstream"],
            registry=registry,
        )
        self.refused = Counter(
            "structured_server_refused", "Requests refused for now.", ["reason"], registry=registry
        )
        self.key_requests = Counter(
            "structured_server_key_requests", "Requests let in, by API key.", ["key"], registry=registry
        )
        self.file_error = Gauge(
            "structured_server_file_error",
            "1 while the latest version of a watched file is wrong.",
            ["file"],
            registry=registry,
        )
        self.decision_log_records = Counter(
            "structured_server_decision_log_records",
            "Decisions that the decision log got: written, or dropped and why.",
            ["outcome"],
            registry=registry,
        )
        self.shed = Counter(
            "structured_server_shed",
            "Decisions and batches of reads that were refused a place in the queue.",
            ["reason"],
            registry=registry,
        )
        self.skipped_extra_reads = Counter(
            "structured_server_skipped_extra_reads", "Extra reads that did not come back.", registry=registry
        )
        self.tasks = Gauge("structured_server_tasks", "Tasks on the event loop.", registry=registry)
        self.tasks.set_function(_tasks)
        self.ready = Gauge("structured_server_ready", "1 while the engine is ready.", registry=registry)
        self.engine_losses = Counter(
            "structured_server_engine_losses", "Times that a ready engine was lost.", registry=registry
        )
        self.warm_up_seconds = Gauge(
            "structured_server_warm_up_seconds",
            "Time that the engine took to become ready, the last time that it did.",
            registry=registry,
        )
        self._build = Gauge(
            "structured_server_build_info",
            "1, with what runs here.",
            ["version", "method", "backend", "python"],
            registry=registry,
        )
        self._step = Gauge(
            "structured_server_readiness_step",
            "1 for the step of getting ready that the server is at.",
            ["step"],
            registry=registry,
        )
        self._at_step: str | None = None
        self._waiting_since = time.monotonic()

        self.canary_runs = Counter(
            "structured_server_canary_runs",
            "Decisions with known answers that were made while idle.",
            ["outcome"],
            registry=registry,
        )
        self.canary_drifts = Counter(
            "structured_server_canary_drifts",
            "Such decisions whose probabilities were far from the last one's.",
            registry=registry,
        )
        self._canary_right: Gauge | None = None

    def runs(self, version: str, method: str, backend: str) -> None:
        """Say what runs here."""
        self._build.labels(version, method, backend, platform.python_version()).set(1)

    def stands_at(self, step: str) -> None:
        """Say at which step of getting ready the server is."""
        if step == self._at_step:
            return
        if self._at_step is not None:
            self._step.remove(self._at_step)
        if step == "ready":
            self.warm_up_seconds.set(time.monotonic() - self._waiting_since)
        elif self._at_step == "ready":
            self._waiting_since = time.monotonic()
        self._at_step = step
        self._step.labels(step).set(1)

    def canary_judged(self, right: bool) -> None:
        """Say whether the latest decision with known answers was right. There is no metric before one."""
        if self._canary_right is None:
            self._canary_right = Gauge(
                "structured_server_canary_right",
                "1 while decisions with known answers come out right.",
                registry=self.registry,
            )
        self._canary_right.set(right)

    def watch_admission(self, admission: Admission) -> None:
        """Read permits and queue from the admission whenever metrics are scraped."""
        self.permits.labels("positions").set_function(lambda: admission.in_use.positions)
        self.permits.labels("reads").set_function(lambda: admission.in_use.reads)
        self.permit_capacity.labels("positions").set_function(lambda: admission.capacity.positions)
        self.permit_capacity.labels("reads").set_function(lambda: admission.capacity.reads)
        self.waiting.set_function(lambda: admission.waiting)

    def watch_replica(self, replica: Replica) -> None:
        """Read how one of several engines stands whenever metrics are scraped."""
        name = replica.name
        self.upstream_ready.labels(name).set_function(lambda: replica.ready)
        self.upstream_positions.labels(name).set_function(lambda: replica.load)
        for state in BREAKER_STATES:
            self._watch_breaker(replica, state)

    def _watch_breaker(self, replica: Replica, state: State) -> None:
        in_it = self.upstream_breaker.labels(replica.name, state)
        in_it.set_function(lambda: replica.breaker.state == state)

    def observe(self, decision: Decision, *, shared: bool = False) -> None:
        """Count a decision and what its answers look like; one that shared its reads counts only as such."""
        if shared:
            self.shared_decisions.inc()
            return
        self._made[bool(decision.extended_by)].inc()
        for name, answer in decision.answers.items():
            self.answers.observe(name, answer)
        for reading in decision.readings:
            if reading.skipped is not None:
                self.skipped_extra_reads.inc()

    def render(self) -> bytes:
        """Return all metrics in the text format that Prometheus scrapes."""
        return generate_latest(self.registry)


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs here
        return 0
