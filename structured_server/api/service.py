"""The parts of a running server, put together from its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from structured_server import __version__
from structured_server.admission import Admission, Weight
from structured_server.backends import Backend
from structured_server.core.plan import Isolate, ReadOptions
from structured_server.core.policy import DEFAULT_ENTROPY_THRESHOLD, UNTEMPERED, ByType, ReadPolicy
from structured_server.core.provenance import METHOD
from structured_server.core.tokens import Tokenizer
from structured_server.decision_log import DecisionLog, KeyedHash, Store, load_key
from structured_server.driver import Driver, no_caveats
from structured_server.errors import SettingsError
from structured_server.google_identity import google_identities
from structured_server.keys import Gate, load_keys
from structured_server.metrics import Metrics
from structured_server.policy_file import load_policy
from structured_server.readiness import ReadinessMonitor
from structured_server.settings import Settings
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from structured_server.watched_file import WatchedFile
from structured_server.wire.known_questions import KnownQuestions

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
    admission: Admission
    readiness: ReadinessMonitor
    metrics: Metrics
    read_options: ReadOptions
    read_policy: ReadPolicy
    gate: Gate
    decision_log: DecisionLog | None = None
    watched: tuple[WatchedFile[Any], ...] = ()
    known_questions: KnownQuestions = field(default_factory=KnownQuestions)

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


def build(settings: Settings, tokenizer: LoadedTokenizer | None = None) -> Service:
    """Put the server together with the tokenizer, or load it. The backend is not connected or loaded yet.

    Raises:
        SettingsError: the settings ask for what is not installed, or what this tokenizer does not have.
        TokenizerError: the tokenizer cannot be loaded.
        DecisionLogError: the decision log cannot be opened.
    """
    if settings.backend == "embedded":
        from structured_server.backends.embedded import EmbeddedBackend, load_demo_model

        demo = load_demo_model()
        tokenizer = load_tokenizer(str(demo.folder))
        backend = EmbeddedBackend(
            demo.weights, tokenizer=tokenizer, canvas=settings.canvas, threads=settings.threads
        )
        return assemble(settings, tokenizer, backend, demo)
    if tokenizer is None:
        tokenizer = load_tokenizer(settings.tokenizer_source, revision=settings.tokenizer_revision or None)
    return assemble(settings, tokenizer, _backend(settings, tokenizer))


def assemble(
    settings: Settings, tokenizer: Tokenizer, backend: Backend, demo: DemoModel | None = None
) -> Service:
    """Put a server together. The demo model has a name, thresholds, temperatures and caveats of its own.

    Raises:
        SettingsError: the settings ask for what this tokenizer does not have.
        DecisionLogError: the decision log cannot be opened.
    """
    if settings.slot_fill == "mask" and tokenizer.mask is None:
        raise SettingsError("--slot-fill mask needs a tokenizer with a mask token; this one has none.")
    model = demo.name if demo else settings.model
    model_revision = demo.revision if demo else settings.model_revision
    if settings.entropy_threshold is not None:
        thresholds = ByType.same(settings.entropy_threshold)
    else:
        thresholds = demo.entropy_thresholds if demo else ByType.same(DEFAULT_ENTROPY_THRESHOLD)
    metrics = Metrics(settings.metrics_question)
    metrics.runs(__version__, METHOD, backend.name)
    admission = Admission(
        Weight(settings.max_positions, settings.max_reads),
        max_waiting=settings.max_waiting,
        max_wait_s=settings.max_wait_ms / 1000,
    )
    metrics.watch_admission(admission)
    if len(settings.upstreams) > 1:
        _follow_replicas(backend, admission, metrics)
    driver = Driver(
        backend,
        tokenizer,
        admission,
        metrics,
        surroundings=(model, model_revision, settings.prompt_transport),
        caveats=demo.caveats if demo else no_caveats,
    )
    gate = _gate(settings)
    return Service(
        settings=settings,
        model=model,
        model_revision=model_revision or None,
        backend=backend,
        driver=driver,
        admission=admission,
        readiness=ReadinessMonitor(backend, metrics),
        metrics=metrics,
        read_options=ReadOptions(scaffold=settings.scaffold, slot_fill=settings.slot_fill),
        read_policy=ReadPolicy(
            entropy_thresholds=thresholds,
            lead=settings.lead_read,
            temperatures=demo.temperatures if demo else UNTEMPERED,
        ),
        gate=gate,
        decision_log=_decision_log(settings, metrics) if settings.decision_log else None,
        watched=tuple(_watched(settings, gate, driver, metrics)),
    )


def _gate(settings: Settings) -> Gate:
    audience = settings.google_audience
    identities = google_identities(audience, settings.google_caller) if audience else None
    return Gate(settings.api_key, identities=identities)


def _decision_log(settings: Settings, metrics: Metrics) -> DecisionLog:
    file = settings.decision_log_key_file
    return DecisionLog(
        Store.open(settings.decision_log, most_bytes=settings.decision_log_mb * 1024 * 1024),
        load_key(file) if file else KeyedHash(),
        metrics,
        with_state=settings.decision_log_state,
        days=settings.decision_log_days,
    )


def _watched(settings: Settings, gate: Gate, driver: Driver, metrics: Metrics) -> Iterator[WatchedFile[Any]]:
    """Put the files that the settings name in force, and yield them to be watched."""
    files = (
        ("keys", settings.api_keys_file, load_keys, gate.use_file),
        ("policy", settings.policy, load_policy, driver.use_policy),
    )
    for name, path, load, use in files:
        if path:
            gauge = metrics.file_error.labels(name)
            file = WatchedFile[Any](name, path, load=load, use=use, report=gauge.set)
            file.begin()
            yield file


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
    from structured_server.backends.vllm.replicas import Replicas

    def engine(url: str) -> VllmBackend:
        return VllmBackend(
            url,
            model=settings.model,
            tokenizer=tokenizer,
            canvas=settings.canvas,
            transport=settings.prompt_transport,
            read_timeout_s=settings.read_timeout_ms / 1000,
            health_path=settings.health_path,
        )

    engines = [engine(url) for url in settings.upstreams]
    if len(engines) == 1:
        return engines[0]
    return Replicas([(each.url, each) for each in engines])


def _follow_replicas(backend: Backend, admission: Admission, metrics: Metrics) -> None:
    """Let there be as many permits as there are engines for, and show how each of them stands."""
    from structured_server.backends.vllm.replicas import Replicas

    if isinstance(backend, Replicas):
        backend.on_ready = admission.resize
        for each in backend.replicas:
            metrics.watch_replica(each)
