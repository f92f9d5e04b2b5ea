"""From a measured plan to what lint looks at."""

from __future__ import annotations

from dataclasses import replace

from structured_server.core.lint_facts import Facts
from structured_server.core.policy import ReadPolicy
from structured_server.core.state import LongState
from structured_server.errors import InvalidRequest
from structured_server.jobs import Frame, JobMaker, Matter, extensions_allowed


def facts_of(
    frame: Frame,
    policy: ReadPolicy,
    *,
    seed: int = 0,
    long_state: LongState = "reject",
    state: str | None = None,
    longest_state_tokens: int | None = None,
) -> Facts:
    """Measure what a decision by a plan takes, with a state if one is given."""
    lengths, tokens = frame.overheads, None
    if state is not None:
        maker = JobMaker(frame, Matter(state))
        lengths, tokens = tuple(map(maker.length, frame.plan.groups)), maker.state_tokens()
    may_extend, refusal = _extensions(frame, replace(policy, samples="auto"))
    if policy.samples != "auto":
        _, refusal = _extensions(frame, policy)
    return Facts(
        plan=frame.plan,
        capabilities=frame.capabilities,
        policy=policy,
        chunks=frame.chunks,
        lengths=lengths,
        may_extend=may_extend,
        tokens_around_state=max(frame.overheads),
        room=frame.room,
        seed=seed,
        long_state=long_state,
        over_limit=refusal,
        state_tokens=tokens,
        longest_state_tokens=longest_state_tokens,
    )


def _extensions(frame: Frame, policy: ReadPolicy) -> tuple[tuple[bool, ...], str | None]:
    """Return for each group whether it may draw again, and why the decision is refused if it is."""
    try:
        allowed = extensions_allowed(frame, policy)
    except InvalidRequest as error:
        return (False,) * len(frame.plan.groups), error.message
    return tuple(allowed[group.identifiers] for group in frame.plan.groups), None
