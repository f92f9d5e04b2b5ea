"""A driver over a fake backend, and what to ask it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from structured_server.admission import Admission, Weight
from structured_server.core.answers import Answer
from structured_server.core.plan import ReadOptions
from structured_server.core.policy import FittedPolicy, ReadPolicy
from structured_server.core.questions import Choice, Noul, Schema
from structured_server.core.reads import Image, ReadRequest
from structured_server.core.state import LongState
from structured_server.driver import Driver, Outcome, Query
from structured_server.metrics import Metrics
from tests.fake_backend import FakeBackend
from tests.toy import ToyTokenizer

TEAMS = ("networking", "compute", "storage")
SCHEMA = Schema(
    (
        ("urgent", Noul("Wake somebody?")),
        ("team", Choice("Whose is it?", tuple((team, None) for team in TEAMS))),
        ("known", Noul("Seen before?")),
    )
)
NOTHING = Weight(0, 0)
_SURE_OF = {ToyTokenizer().encode(word)[0] for word in ("yes", TEAMS[0])}


def sure(_request: ReadRequest, token_id: int, _position: int) -> float:
    """Put nearly everything on yes, or on the first team."""
    return -0.01 if token_id in _SURE_OF else -14.0


def unsure(_request: ReadRequest, _token_id: int, _position: int) -> float:
    """Give every label the same."""
    return -3.0


def answers_of(outcome: Outcome) -> dict[str, Answer]:
    """Return the answers of questions that were read; there must be no others."""
    found = {}
    for name, answer in outcome.decision.answers.items():
        assert isinstance(answer, Answer), f"{name} was skipped"
        found[name] = answer
    return found


@dataclass(slots=True)
class Deciding:
    """A driver with its parts in reach."""

    backend: FakeBackend = field(default_factory=FakeBackend)
    capacity: Weight = Weight(1024, 16)
    max_waiting: int = 64
    max_wait_s: float = math.inf
    tokenizer: ToyTokenizer = field(default_factory=ToyTokenizer)
    surroundings: tuple[str, ...] = ()
    fitted: FittedPolicy | None = None
    metrics: Metrics = field(default_factory=Metrics)
    admission: Admission = field(init=False)
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(self.capacity, max_waiting=self.max_waiting, max_wait_s=self.max_wait_s)
        self.driver = Driver(
            self.backend,
            self.tokenizer,
            self.admission,
            self.metrics,
            surroundings=self.surroundings,
            fitted=self.fitted,
        )

    def counted(self, metric: str, **labels: str) -> float:
        """Return the value of a metric, 0 where it has none yet."""
        return self.metrics.registry.get_sample_value(f"structured_server_{metric}", labels) or 0.0

    @property
    def idle(self) -> bool:
        """Whether no permit is out, nobody waits, and the backend is left alone."""
        return (NOTHING, 0, 0) == (self.admission.in_use, self.admission.waiting, self.backend.in_flight)


def query(
    *,
    schema: Schema = SCHEMA,
    state: str = "a pump",
    samples: Any = "auto",
    lead: bool = False,
    seed: int = 0,
    deadline_s: float = 8.0,
    policy: ReadPolicy | None = None,
    images: tuple[Image, ...] = (),
    long_state: LongState = "reject",
    require_draws: bool = False,
    **options: Any,
) -> Query:
    """Return a query; what is not named is as the server's defaults are."""
    policy = policy or ReadPolicy(samples, lead=lead)
    return Query(
        schema,
        state,
        ReadOptions(**options),
        policy,
        seed,
        deadline_s,
        images,
        long_state,
        require_draws=require_draws,
    )
