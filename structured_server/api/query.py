"""From a parsed request, in whichever wire format, to a query, and from there to its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from starlette.requests import Request

from structured_server.admission import Lane
from structured_server.api.bodies import unless_gone
from structured_server.api.paths import new_id, route_of
from structured_server.api.service import Service
from structured_server.core.plan import ReadOptions
from structured_server.core.policy import ReadPolicy
from structured_server.core.questions import Schema
from structured_server.core.reads import Image
from structured_server.core.state import LongState
from structured_server.decision_log import Entry, Sender
from structured_server.driver import Outcome, Query
from structured_server.errors import UnknownModel
from structured_server.wire.decide_rendering import About
from structured_server.wire.systemone import MODELS


class Asked(Protocol):
    """What every wire format's request says."""

    @property
    def model(self) -> str | None:
        """The model that is asked for, None for the one that is served."""

    @property
    def deadline_ms(self) -> int | None:
        """The time within which to answer, None for the server's."""

    @property
    def seed(self) -> int:
        """What moves the noise."""

    @property
    def require_draws(self) -> bool:
        """Whether to fail where draws that were wanted could not be made."""

    @property
    def long_state(self) -> LongState:
        """What is done with a state that does not fit."""

    def schema_of_questions(self) -> Schema:
        """Return the questions as the core knows them.

        Raises:
            InvalidRequest: one of them is wrong.
        """

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's."""

    def read_policy(self, defaults: ReadPolicy) -> ReadPolicy:
        """Return the request's policy over the server's."""


def query_of(
    asked: Asked,
    service: Service,
    state: str,
    images: tuple[Image, ...] = (),
    *,
    options: ReadOptions | None = None,
    other_models: Sequence[str] = (),
    schema: Schema | None = None,
) -> Query:
    """Return what is to be decided about a state.

    `options` are what the request's stand over where they are not the server's own, `other_models` are names
    that are accepted in place of the served model's. The `schema` is the questions', where known.

    Raises:
        UnknownModel: another model is asked for.
        InvalidRequest: a question or a read option is wrong.
    """
    if asked.model is not None and asked.model not in (*service.model_names, *other_models):
        raise UnknownModel(
            "names a model that is not served here.",
            path=("model",),
            hint=f"This server has {service.model}.",
        )
    deadline_ms = service.settings.deadline_ms if asked.deadline_ms is None else asked.deadline_ms
    return Query(
        schema=schema or asked.schema_of_questions(),
        state=state,
        options=asked.read_options(service.read_options if options is None else options),
        policy=asked.read_policy(service.read_policy),
        seed=asked.seed,
        deadline_s=deadline_ms / 1000,
        images=images,
        long_state=asked.long_state,
        require_draws=asked.require_draws,
    )


class Independent(Asked, Protocol):
    """A request of a format whose clients were promised questions that do not move each other."""

    @property
    def pictures(self) -> tuple[Image, ...]:
        """The images that belong to the state."""

    def state_text(self) -> str:
        """Return the state as the model is shown it.

        Raises:
            InvalidRequest: it cannot be shown.
        """


def independent_query_of(asked: Independent, service: Service) -> Query:
    """Return what such a request asks. It may name System One's own models in place of the served one.

    Raises:
        UnknownModel: another model is asked for.
        InvalidRequest: a question or a read option is wrong.
    """
    return query_of(
        asked,
        service,
        asked.state_text(),
        asked.pictures,
        options=service.independent_options,
        other_models=MODELS,
    )


async def outcome_of(
    query: Query, request: Request, service: Service, metadata: Mapping[str, str] | None = None
) -> tuple[Outcome, About]:
    """Decide, unless the sender leaves meanwhile. Return also what the answer says of the decision.

    Raises:
        ClientDisconnect: it left.
        StructuredServerError: each has a status in `api.errors`.
    """
    service.readiness.require()
    if request.state.cache_salt:
        query = replace(query, cache_salt=request.state.cache_salt)
    outcome = await unless_gone(request, service.driver.decide(query, Lane(request.state.key)))
    return outcome, named(query, outcome, service, sender_of(request), metadata or {})


def sender_of(request: Request) -> Sender:
    """Return where a request came in, and as whose."""
    return Sender(route_of(request.scope), request.state.request_id, request.state.key)


def named(
    query: Query,
    outcome: Outcome,
    service: Service,
    sender: Sender,
    metadata: Mapping[str, str],
    item: Mapping[str, Any] | None = None,
) -> About:
    """Name a decision that was made, count it, and record it where that is wanted."""
    decided = all(answer.status != "abstained" for answer in outcome.decision.answers.values())
    service.metrics.outcomes.labels(sender.route, "decided" if decided else "undecided").inc()
    about = About(
        identifier=new_id("dec"),
        model=service.model,
        backend=service.backend.name,
        model_revision=service.model_revision,
    )
    if service.decision_log is not None:
        service.decision_log.put(Entry(time.time(), query, outcome, about, sender, metadata, item))
    return about
