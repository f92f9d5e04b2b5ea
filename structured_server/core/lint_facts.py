"""What lint knows of a question set: its plan, measured."""

from __future__ import annotations

from dataclasses import dataclass

from structured_server.core.plan import Capabilities, Plan
from structured_server.core.policy import ReadPolicy
from structured_server.core.state import LongState


@dataclass(frozen=True, slots=True)
class Facts:
    """A plan with what a decision by it takes. Tuples have an entry for each group.

    `lengths` are the tokens of prompt and canvas, at most, with the state if there is one. `over_limit` says
    by how much the draws that are asked for pass the limit of reads, None where they do not.
    """

    plan: Plan
    capabilities: Capabilities
    policy: ReadPolicy
    chunks: tuple[tuple[tuple[int, ...], ...], ...]
    lengths: tuple[int, ...]
    may_extend: tuple[bool, ...]  # whether auto may draw the group again within the limit of reads
    tokens_around_state: int
    room: int | None
    seed: int = 0
    long_state: LongState = "reject"
    over_limit: str | None = None
    state_tokens: int | None = None
    longest_state_tokens: int | None = None
