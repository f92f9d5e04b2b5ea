"""How a decision becomes the response of `POST /decide`, and what other formats say of it too.

Numbers are never rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypedDict

import structured_server
from structured_server.core.answers import Answer, Reason, Skipped
from structured_server.core.decision import Decision
from structured_server.core.distribution import choice_confidence, score_confidence
from structured_server.core.policy import Calibration
from structured_server.core.provenance import METHOD
from structured_server.core.questions import Noul, Score
from structured_server.core.reads import Thought
from structured_server.driver import Outcome


class About(TypedDict):
    """What an answer says of the decision and of who made it."""

    identifier: str
    model: str
    backend: str
    model_revision: str | None


def render(
    outcome: Outcome,
    *,
    identifier: str,
    model: str,
    backend: str,
    model_revision: str | None,
    metadata: Mapping[str, str],
) -> dict[str, Any]:
    """Return the body of a 200, in the shape of `DecideResponse`."""
    decision = outcome.decision
    about = particulars(outcome, identifier=identifier, backend=backend, model_revision=model_revision)
    return {
        "id": about.pop("id"),
        "model": model,
        "answers": {name: _answer(answer) for name, answer in decision.answers.items()},
        "undecided": about.pop("undecided"),
        "usage": usage_of(decision),
        **about,
        "metadata": dict(metadata),
    }


def particulars(
    outcome: Outcome, *, identifier: str, backend: str, model_revision: str | None
) -> dict[str, Any]:
    """Return what is told of a decision beside its answers, in every wire format."""
    decision = outcome.decision
    options = decision.plan.options
    return {
        "id": identifier,
        "undecided": [name for name, answer in decision.answers.items() if answer.status == "abstained"],
        "reading": {
            "reads": len(decision.reads),
            "extended": bool(decision.extended_by),
            "extended_by": list(decision.extended_by),
            "groups": [list(group.identifiers) for group in decision.plan.groups],
            "stages": [
                [name for group in stage for name in group.identifiers] for stage in decision.plan.stages
            ],
            "shared": outcome.shared,
            "thoughts": [_thought(names, thought) for names, thought in decision.thoughts],
            "isolate": decision.plan.isolated,
            "layout": options.layout,
            "template": options.template,
            "canvas_width": max(group.canvas.width for group in decision.plan.groups),
            "aliases": {
                name: asked.aliases
                for group in decision.plan.groups
                for name, asked in zip(group.identifiers, group.asked, strict=True)
                if asked.aliases
            },
            "state_tokens": outcome.state_tokens,
            "state_tokens_used": outcome.state_tokens_used,
        },
        "calibration": _calibration(decision.calibration),
        "provenance": {
            "server": structured_server.__version__,
            "backend": backend,
            "method": METHOD,
            "model_revision": model_revision,
            "question_set": outcome.question_set,
            "fingerprint": outcome.fingerprint,
        },
        "warnings": [
            {key: value for key, value in asdict(warning).items() if value is not None}
            for warning in decision.warnings
        ],
        "timings_ms": {"queue": outcome.queue_ms, "engine": outcome.engine_ms, "total": outcome.total_ms},
    }


def _thought(questions: tuple[str, ...], thought: Thought) -> dict[str, Any]:
    return {
        "questions": list(questions),
        "text": thought.text,
        "tokens": len(thought.ids),
        "closed": thought.closed,
        "milliseconds": 1000 * thought.seconds,
    }


def _calibration(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    temperatures = calibration.policy.temperatures if calibration.fingerprint_match else None
    return {
        "policy": calibration.policy.name,
        "temperatures": asdict(temperatures) if temperatures else None,
        "fingerprint_match": calibration.fingerprint_match,
    }


def reason_of(reason: Reason) -> dict[str, Any]:
    """Return why a question was not decided, in the shape of `ReasonOut`."""
    body: dict[str, Any] = {"code": reason.code, "value": reason.value, "limit": reason.limit}
    return body if reason.question is None else body | {"question": reason.question}


def _answer(answer: Answer | Skipped) -> dict[str, Any]:
    if isinstance(answer, Skipped):
        return {
            "type": answer.question.kind,
            "status": answer.status,
            "answer": None,
            "reasons": [reason_of(answer.reason)],
        }
    question, reading = answer.question, answer.distribution
    decided = not answer.reasons
    body: dict[str, Any] = {"type": question.kind, "status": answer.status}
    if isinstance(question, Noul):
        body["answer"] = answer.option == 0 if decided else None
        body["noul"] = answer.headline
        body["threshold"] = question.threshold
    elif isinstance(question, Score):
        body["answer"] = reading.mode if decided else None
        body["score"] = answer.headline
        body["score_base"] = 0
        body["level"] = reading.mode
        body["legend"] = {
            option.key: level for option, level in zip(question.options, question.levels, strict=True)
        }
        body["confidence"] = score_confidence(reading.probabilities)
    else:
        chosen = question.options[reading.mode].key
        body["answer"] = chosen if decided else None
        body["choice"] = chosen
        body["confidence"] = choice_confidence(reading.probabilities)
    if answer.reasons:
        body["reasons"] = [reason_of(reason) for reason in answer.reasons]
    body["probabilities"] = {
        option.key: p for option, p in zip(question.options, reading.probabilities, strict=True)
    }
    return body | reading_of(answer)


def reading_of(answer: Answer) -> dict[str, Any]:
    """Return what an answer's distribution and its draws are described by."""
    reading = answer.distribution
    body: dict[str, Any] = {
        "top_probability": reading.top_probability,
        "entropy": reading.entropy,
        "normalized_entropy": reading.normalized_entropy,
        "label_mass": reading.label_mass,
    }
    body["noise"] = {
        "draws": answer.draws,
        "agreement": answer.agreement,
        "standard_error": answer.standard_error,
        "interval_95": list(answer.interval_95) if answer.interval_95 else None,
        "first_entropy": answer.first_entropy,
    }
    if answer.order_spread is not None:
        body["noise"] |= {"orders": answer.orders, "order_spread": answer.order_spread}
    return body


def usage_of(decision: Decision) -> dict[str, Any]:
    """Count a decision's tokens, in the shape of `Usage`."""
    cached = [read.cached_tokens for read in decision.reads]
    return {
        "input_tokens": sum(reading.reads[0].prompt_tokens for reading in decision.readings),
        "output_tokens": sum(len(reading.group.identifiers) for reading in decision.readings)
        + sum(len(thought.ids) for _, thought in decision.thoughts),
        "engine_input_tokens": sum(read.prompt_tokens for read in decision.reads),
        "cached_input_tokens": None if None in cached else sum(filter(None, cached)),
    }
