"""The parts of a running server, put together from its settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from structured_server.admission import Admission, Weight
from structured_server.backends import Backend
from structured_server.core.plan import Isolate, ReadOptions
from structured_server.core.policy import DEFAULT_ENTROPY_THRESHOLD, UNTEMPERED, ByType, ReadPolicy
from structured_server.core.tokens import Tokenizer
from structured_server.driver import Driver, no_caveats
from structured_server.errors import SettingsError
from structured_server.metrics import Metrics
from structured_server.policy_file import load_policy
from structured_server.readiness import ReadinessMonitor
from structured_server.settings import Settings
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer

# Backends are imported where one is wanted: they bring much along.
if TYPE_CHECKING:
    from structured_server.backends.embedded import DemoModel


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes use. `model` is the name that answers carry, with its revision where one is known."""

    settings: Settings
    model: str
    model_revision: str | None
    backend: Backend
    driver: Driver
    readiness: ReadinessMonitor
    metrics: Metrics
    read_options: ReadOptions
    read_policy: ReadPolicy

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names that the served model answers to."""
        return (self.model, *self.settings.model_alias)

    @property
    def independent_options(self) -> ReadOptions:
        """The read options of formats whose clients were promised questions that do not move each other.

        The state stands first, so that the reads of one request share it as a prefix.
        """
        isolate: Isolate = "none" if self.settings.joint_reads else "all"
        return replace(self.read_options, isolate=isolate, layout="document_first")


def build(settings: Settings) -> Service:
    """Load the tokenizer and put the server together. The backend is not connected or loaded yet.

    Raises:
        SettingsError: the settings ask for what is not installed, or what this tokenizer does not have.
        TokenizerError: the tokenizer cannot be loaded.
    """
    if settings.backend == "embedded":
        from structured_server.backends.embedded import EmbeddedBackend, load_demo_model

        demo = load_demo_model()
        tokenizer = load_tokenizer(str(demo.folder))
        backend = EmbeddedBackend(
            demo.weights, tokenizer=tokenizer, canvas=settings.canvas, threads=settings.threads
        )
        return assemble(settings, tokenizer, backend, demo)
    tokenizer = load_tokenizer(settings.tokenizer_source, revision=settings.tokenizer_revision or None)
    return assemble(settings, tokenizer, _backend(settings, tokenizer))


def assemble(
    settings: Settings, tokenizer: Tokenizer, backend: Backend, demo: DemoModel | None = None
) -> Service:
    """Put a server together. The demo model has a name, thresholds, temperatures and caveats of its own.

    Raises:
        SettingsError: the settings ask for what this tokenizer does not have.
    """
    if settings.slot_fill == "mask" and tokenizer.mask is None:
        raise SettingsError("--slot-fill mask needs a tokenizer with a mask token; this one has none.")
    model = demo.name if demo else settings.model
    model_revision = demo.revision if demo else settings.model_revision
    if settings.entropy_threshold is not None:
        thresholds = ByType.same(settings.entropy_threshold)
    else:
        thresholds = demo.entropy_thresholds if demo else ByType.same(DEFAULT_ENTROPY_THRESHOLD)
    metrics = Metrics()
    admission = Admission(
        Weight(settings.max_positions, settings.max_reads), max_waiting=settings.max_waiting
    )
    metrics.watch_admission(admission)
    return Service(
        settings=settings,
        model=model,
        model_revision=model_revision or None,
        backend=backend,
        driver=Driver(
            backend,
            tokenizer,
            admission,
            metrics,
            surroundings=(model, model_revision, settings.prompt_transport),
            caveats=demo.caveats if demo else no_caveats,
            fitted=load_policy(settings.policy) if settings.policy else None,
        ),
        readiness=ReadinessMonitor(backend, metrics),
        metrics=metrics,
        read_options=ReadOptions(scaffold=settings.scaffold, slot_fill=settings.slot_fill),
        read_policy=ReadPolicy(
            entropy_thresholds=thresholds,
            lead=settings.lead_read,
            temperatures=demo.temperatures if demo else UNTEMPERED,
        ),
    )


def _backend(settings: Settings, tokenizer: LoadedTokenizer) -> Backend:
    """Return the backend that the settings name, for a model of the caller's."""
    if settings.backend == "transformers":
        from structured_server.backends.transformers import TransformersBackend

        return TransformersBackend(
            settings.model,
            tokenizer=tokenizer,
            canvas=settings.canvas,
            device=settings.device,
            dtype=settings.dtype,
            revision=settings.model_revision or None,
        )
    from structured_server.backends.vllm import VllmBackend

    return VllmBackend(
        settings.upstream,
        model=settings.model,
        tokenizer=tokenizer,
        canvas=settings.canvas,
        transport=settings.prompt_transport,
        read_timeout_s=settings.read_timeout_ms / 1000,
    )
