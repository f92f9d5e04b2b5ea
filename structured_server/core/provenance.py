"""What must be equal for two answers to be comparable: the method, the question set, the fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from hashlib import blake2b

from structured_server.core.plan import Plan
from structured_server.core.policy import FittedPolicy, ReadPolicy
from structured_server.core.questions import Schema

METHOD = "m1"
"""Names prompt, template, label choice, noise and pooling together. Changing any of them takes a new name."""


def question_set_id(schema: Schema) -> str:
    """Return a short name for the questions as asked, ids and limits included."""
    return f"qs_{_digest([_said(schema)])}"


def fingerprint(
    plan: Plan, policy: ReadPolicy, surroundings: Sequence[str], fitted: FittedPolicy | None = None
) -> str:
    """Return a short digest of all that moves numbers, among them the fitted policy that is applied.

    `surroundings` names what lies outside the request: backend, model, its revision, tokenizer. The state and
    the caller's seed are not in it: they are what is read, and with what noise.
    """
    groups = [(group.identifiers, group.canvas.width) for group in plan.groups]
    parts = [METHOD, *map(_said, (plan.schema, plan.options, policy, groups)), *surroundings]
    return f"fp_{_digest(parts if fitted is None else [*parts, _said(fitted)])}"


def _said(value: object) -> str:
    """Write a value out, fields that have their default left out: a new field renames nothing."""
    if is_dataclass(value):
        said = [
            f"{each.name}={_said(getattr(value, each.name))}"
            for each in fields(value)
            if each.default is MISSING or getattr(value, each.name) != each.default
        ]
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_said, value))}]"
    return repr(value)


def _digest(parts: Sequence[str]) -> str:
    digest = blake2b(digest_size=4)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
