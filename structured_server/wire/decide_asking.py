"""From a query back to the body of `POST /decide` that asks the same, whichever wire format it came in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from structured_server.core.policy import EXTRA_DRAWS
from structured_server.core.questions import NO_LIMITS, Choice, Noul, Question, Schema
from structured_server.driver import Query


def questions_of(schema: Schema) -> dict[str, Any]:
    """Return the questions as `questions` of a request; what has its default is left out."""
    return {name: _question(question) for name, question in schema.questions}


def read_of(query: Query) -> dict[str, Any]:
    """Return how a query is read as `read` of a request, nothing left to the defaults of a server."""
    options, policy = query.options, query.policy
    return {
        "samples": policy.samples,
        "entropy_threshold": asdict(policy.entropy_thresholds),
        "max_reads": policy.max_reads,
        "temperature": asdict(policy.temperatures),
        "rotate": options.rotate,
        "steps": options.steps,
        "constrained": options.constrained,
        "think": options.think,
        "long_state": query.long_state,
        "require_draws": query.require_draws,
        "isolate": options.isolate,
        "layout": options.layout,
        "template": options.template,
        "keys": options.keys,
        "seed": query.seed,
    }


def unsaid_of(query: Query) -> list[str]:
    """Name what a query asks and `POST /decide` has no word for, in the words of the formats that have."""
    said = {
        "instructions": query.schema.context is not None,
        "chunk_rows": query.options.rows is not None,
        "sequential": query.options.sequential,
        "auto_max": query.policy.samples == "auto" and query.policy.extra_draws != EXTRA_DRAWS,
        "images": bool(query.images),
    }
    return [name for name, is_asked in said.items() if is_asked]


def _question(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"type": question.kind}
    if question.instructions is not None:
        body["instructions"] = question.instructions
    if isinstance(question, Noul):
        if question.true is not None or question.false is not None:
            body["criteria"] = {"true": question.true, "false": question.false}
        body["threshold"] = question.threshold
    elif isinstance(question, Choice):
        body["criteria"] = dict(question.criteria)
    else:
        body["criteria"] = list(question.levels)
    return body | _conditions(question)


def _conditions(question: Question) -> dict[str, Any]:
    """Return what all types of questions have, as far as it is not the default."""
    body: dict[str, Any] = {}
    if question.limits != NO_LIMITS:
        body["abstain"] = {
            name: limit for name, limit in asdict(question.limits).items() if limit is not None
        }
    if question.aliases:
        body["aliases"] = dict(question.aliases)
    conditions = question.conditions
    if conditions.depends_on:
        body["depends_on"] = list(conditions.depends_on)
    if conditions.ask_if:
        body["ask_if"] = {name: list(answers) for name, answers in conditions.ask_if}
    if conditions.alone:
        body["alone"] = True
    return body
