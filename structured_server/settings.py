"""The server's settings: one value object. Each field is a command line flag and an environment variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from structured_server.core.plan import Scaffold
from structured_server.core.policy import DEFAULT_ENTROPY_THRESHOLD
from structured_server.core.reads import SlotFill
from structured_server.errors import SettingsError

PREFIX = "STRUCTURED_SERVER_"

BackendName = Literal["vllm", "embedded", "transformers"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
PromptTransport = Literal["completions", "chat"]
LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

WIDTH_STEP = 16
WIDEST_CANVAS = 256
WIDEST_EMBEDDED = 64
MOST_NAMED = 50
LAST_PORT = 65_535


def _setting(help_text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to serve. Refuses what cannot work."""

    backend: BackendName | None = _setting(
        "What reads: a vLLM server, the demo model in this package, or transformers in this process. "
        "Default: vllm, if --upstream is given."
    )
    upstream: tuple[str, ...] | str = _setting(
        "Base URL of the vLLM server, with or without /v1; of several, repeated or separated by commas.", ()
    )
    model: str = _setting(
        "The model's name on that server (its --served-model-name); for transformers its folder or hub id.",
        "",
    )
    tokenizer: str = _setting("Folder or hub id of the model's tokenizer. Default: the model's name.", "")
    tokenizer_revision: str = _setting("Revision of a tokenizer from the hub.", "")
    model_revision: str = _setting(
        "Revision of the model, for provenance in answers; for transformers also the one to load.", ""
    )
    canvas: int = _setting(
        "The widest canvas in tokens: a multiple of 16, at most what the engine serves.", 64
    )
    device: str = _setting(
        "For transformers: cpu, cuda, cuda:1 and so on; auto takes a GPU if one is there.", "auto"
    )
    dtype: Dtype = _setting("For transformers: the numbers to compute with.", "auto")
    threads: int = _setting("For the embedded model: threads of one read.", 2)
    allow_demo_model: bool = _setting(
        "Serve the embedded model in Cloud Run, in Kubernetes or beyond this machine too.", False
    )
    host: str = _setting("Address to listen on.", "127.0.0.1")
    port: int = _setting("Port to listen on; 0 takes a free one.", 8080)
    prompt_transport: PromptTransport = _setting(
        "How prompts travel: as token ids, or as chat messages for routers that refuse ids.", "completions"
    )
    scaffold: Scaffold = _setting(
        "Where the empty thought block stands; in the prompt canvases are narrower.", "prompt"
    )
    health_path: str = _setting(
        "Where the engine, or the router before it, says whether it is well: /readiness for smg.", "/health"
    )
    slot_fill: SlotFill = _setting(
        "What fills answer slots; mask is for models that were trained with one.", "noise"
    )
    lead_read: bool = _setting(
        "Send the first of several draws ahead, to fill the engine's prefix cache.", False
    )
    entropy_threshold: float | None = _setting(
        f"Entropy in nats above which samples=auto reads again. Default: {DEFAULT_ENTROPY_THRESHOLD}; "
        "the embedded model has its own."
    )
    joint_reads: bool = _setting(
        "Read the questions of System One and OpenAI requests together, as /decide does: quicker, but they "
        "may move each other.",
        False,
    )
    model_alias: tuple[str, ...] = _setting("Another name that the model answers to; may be repeated.", ())
    policy: str = _setting(
        "File with temperatures and entropy thresholds that were fitted for one question set.", ""
    )
    drain_s: int = _setting("Seconds that requests in flight get when the server is told to stop.", 8)
    dead_after_s: int = _setting(
        "Seconds after which a lost engine makes /live fail, so that the platform starts both anew; 0 never.",
        300,
    )
    deadline_ms: int = _setting("Deadline of requests that name none.", 8000)
    read_timeout_ms: int = _setting("How long one read may take at the engine.", 30_000)
    receive_timeout_ms: int = _setting("How long a request may take to come in, whole.", 30_000)
    max_positions: int = _setting(
        "Canvas positions in flight at once: bounds the engine's sampler memory.", 1024
    )
    max_reads: int = _setting("Reads in flight at once: the engine's --max-num-seqs.", 16)
    max_waiting: int = _setting("Batches of reads that may wait before requests are refused.", 1024)
    max_wait_ms: int = _setting("Estimated wait in the queue from which requests are refused at once.", 2000)
    max_body_bytes: int = _setting("Largest request body.", 4 * 1024 * 1024)
    api_key: tuple[str, ...] = _setting(
        "A key that callers must send as a bearer token; may be repeated.", ()
    )
    api_keys_file: str = _setting(
        "File with names and SHA-256 digests of keys, and what each may; re-read when it changes.", ""
    )
    google_audience: str = _setting(
        "Let in Google-signed identity tokens for this audience too, of those whom --google-caller names.", ""
    )
    google_caller: tuple[str, ...] = _setting(
        "Who may come with an identity token: an e-mail address, @domain, or * for every account there is; "
        "may be repeated.",
        (),
    )
    canary_s: int = _setting(
        "Seconds between decisions with known answers, made while there is nothing else to do; 0 makes none.",
        60,
    )
    canary: str = _setting(
        "File with such a request and, under expect, its right answers. Default: one about an incident.", ""
    )
    metrics_question: tuple[str, ...] = _setting(
        "Id of a question to have metrics of its own, its options' names included; may be repeated.", ()
    )
    decision_log: str = _setting(
        "SQLite file in which every decision is recorded, without its state. Default: none.", ""
    )
    decision_log_state: bool = _setting("Record the text of states too; log replay needs it.", False)
    decision_log_key_file: str = _setting(
        "File with the secret under which states are hashed in the decision log. Default: one that ends with "
        "the process.",
        "",
    )
    decision_log_days: int = _setting("Days after which records are deleted; 0 keeps them.", 30)
    decision_log_mb: int = _setting("Size in MiB from which the oldest records make room for new ones.", 1024)
    log_level: LogLevel = _setting("Lowest level of log lines; info has a line a request.", "info")
    log_format: LogFormat = _setting("How log lines are written; auto is text on a terminal.", "auto")
    gcp_project: str = _setting("The Google Cloud project that traces in log lines are named by.", "")

    def __post_init__(self) -> None:
        self._settle_backend()
        if self.canvas % WIDTH_STEP or not WIDTH_STEP <= self.canvas <= WIDEST_CANVAS:
            raise SettingsError(
                f"--canvas must be a multiple of {WIDTH_STEP} up to {WIDEST_CANVAS}, got {self.canvas}."
            )
        if self.prompt_transport == "chat" and self.scaffold == "prompt":
            raise SettingsError(
                "--prompt-transport chat needs --scaffold canvas: a chat prompt cannot end in one."
            )
        if not self.health_path.startswith("/"):
            raise SettingsError(f"--health-path must start with /, got {self.health_path!r}.")
        self._settle_google()
        if self.max_positions < self.canvas:
            raise SettingsError(f"--max-positions must be at least --canvas ({self.canvas}).")
        for name in (
            "deadline_ms",
            "read_timeout_ms",
            "receive_timeout_ms",
            "max_reads",
            "max_body_bytes",
            "threads",
            "decision_log_mb",
        ):
            if getattr(self, name) < 1:
                raise SettingsError(f"--{flag(name)} must be at least 1, got {getattr(self, name)}.")
        for name in (
            "max_waiting",
            "max_wait_ms",
            "entropy_threshold",
            "port",
            "canary_s",
            "decision_log_days",
        ):
            value = getattr(self, name)
            if value is not None and not value >= 0:  # NaN is refused too
                raise SettingsError(f"--{flag(name)} must not be negative, got {value}.")
        if len(self.metrics_question) > MOST_NAMED:
            raise SettingsError(f"--metrics-question may be given {MOST_NAMED} times at most.")
        if self.port > LAST_PORT:
            raise SettingsError(f"--port must be at most {LAST_PORT}, got {self.port}.")

    @property
    def tokenizer_source(self) -> str:
        """The folder or hub id to load the tokenizer from."""
        return self.tokenizer or self.model

    def _settle_google(self) -> None:
        if bool(self.google_audience) != bool(self.google_caller):
            # Anybody with a Google account can have a token made for any audience.
            raise SettingsError(
                "--google-audience and --google-caller need each other: say for whom tokens are made, and "
                "whose are taken."
            )
        for caller in self.google_caller:
            if caller != "*" and "@" not in caller:
                raise SettingsError(
                    f"--google-caller must be an e-mail address, @domain or *, got {caller!r}."
                )

    @property
    def upstreams(self) -> tuple[str, ...]:
        """The base URLs of all vLLM servers."""
        given = (self.upstream,) if isinstance(self.upstream, str) else self.upstream or ()
        return tuple(url.strip() for each in given for url in each.split(",") if url.strip())

    def _settle_backend(self) -> None:
        """Choose vllm where only an upstream is given, and refuse what does not belong to the backend."""
        if not self.backend:
            if not self.upstreams:
                raise SettingsError(
                    "serve needs to know what reads: add --upstream URL for a vLLM server, or "
                    "--backend embedded for the demo model, or --backend transformers --model DIR."
                )
            object.__setattr__(self, "backend", "vllm")
        if self.backend != "vllm" and self.upstreams:
            raise SettingsError(f"--upstream is not for --backend {self.backend}: leave one of them out.")
        if self.backend == "embedded":
            for name in ("model", "tokenizer"):
                if getattr(self, name):
                    raise SettingsError(f"--backend embedded has its own {name}: leave --{name} out.")
            if self.canvas > WIDEST_EMBEDDED:
                raise SettingsError(
                    f"--canvas must be at most {WIDEST_EMBEDDED} with --backend embedded, got {self.canvas}."
                )
        elif self.backend == "transformers":
            if not self.model:
                raise SettingsError("--backend transformers needs --model, the model's folder or hub id.")
        elif not self.upstreams:
            raise SettingsError("--backend vllm needs --upstream URL, the address of the vLLM server.")
        elif not self.model:
            raise SettingsError("serve needs --model NAME, the engine's --served-model-name.")
        else:
            self._check_upstreams()

    def _check_upstreams(self) -> None:
        for url in self.upstreams:
            if not url.startswith(("http://", "https://")):
                raise SettingsError(f"--upstream must start with http:// or https://, got {url!r}.")
        if len({url.rstrip("/").removesuffix("/v1") for url in self.upstreams}) < len(self.upstreams):
            raise SettingsError("--upstream names the same server twice.")


def flag(name: str) -> str:
    """Return a field's flag, without the dashes in front."""
    return name.replace("_", "-")


def variable(name: str) -> str:
    """Return a field's environment variable."""
    return PREFIX + name.upper()


def choices(annotation: str) -> tuple[str, ...]:
    """Return what a field of this annotation may hold, () where anything."""
    found: Any = globals().get(annotation.removesuffix(" | None"))
    return get_args(found)
