"""The parts of a running server, put together from its settings."""

from __future__ import annotations

from dataclasses import dataclass

from structured_server.admission import Admission, Weight
from structured_server.backends import Backend
from structured_server.backends.vllm import EngineTokenizer, VllmBackend
from structured_server.core.decision import ReadPolicy
from structured_server.core.plan import ReadOptions
from structured_server.core.tokens import Tokenizer
from structured_server.driver import Driver
from structured_server.errors import SettingsError
from structured_server.metrics import Metrics
from structured_server.readiness import ReadinessMonitor
from structured_server.settings import Settings


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes use."""

    settings: Settings
    backend: Backend
    driver: Driver
    readiness: ReadinessMonitor
    metrics: Metrics
    read_options: ReadOptions
    read_policy: ReadPolicy


def vllm_backend(settings: Settings, tokenizer: EngineTokenizer) -> VllmBackend:
    """Return the backend that the settings name. Nothing is connected yet."""
    return VllmBackend(
        settings.upstream,
        model=settings.model,
        tokenizer=tokenizer,
        canvas=settings.canvas,
        transport=settings.prompt_transport,
        read_timeout_s=settings.read_timeout_ms / 1000,
    )


def assemble(settings: Settings, tokenizer: Tokenizer, backend: Backend) -> Service:
    """Put a server together.

    Raises:
        SettingsError: the settings ask for what this tokenizer does not have.
    """
    if settings.slot_fill == "mask" and tokenizer.mask is None:
        raise SettingsError("--slot-fill mask needs a tokenizer with a mask token; this one has none.")
    metrics = Metrics()
    admission = Admission(
        Weight(settings.max_positions, settings.max_reads), max_waiting=settings.max_waiting
    )
    metrics.watch_admission(admission)
    return Service(
        settings=settings,
        backend=backend,
        driver=Driver(
            backend,
            tokenizer,
            admission,
            metrics,
            surroundings=(settings.model, settings.model_revision, settings.prompt_transport),
        ),
        readiness=ReadinessMonitor(backend, metrics),
        metrics=metrics,
        read_options=ReadOptions(scaffold=settings.scaffold, slot_fill=settings.slot_fill),
        read_policy=ReadPolicy(entropy_threshold=settings.entropy_threshold, lead=settings.lead_read),
    )
