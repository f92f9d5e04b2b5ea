"""The decision: a generator that asks for reads and folds them into answers. It asks, it never calls.

`read_group` is driven once for each group of a plan, all at the same time; `conclude` puts their readings
together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from structured_server.core import distribution as d
from structured_server.core.answers import Answer, DecisionWarning, fold_draws, warnings_about
from structured_server.core.distribution import Distribution
from structured_server.core.plan import Group, Plan
from structured_server.core.questions import Schema
from structured_server.core.reads import (
    Prompt,
    Read,
    ReadRequest,
    checked,
    fill_with_mask,
    fill_with_noise,
)
from structured_server.errors import UpstreamProtocolError

MAX_DRAWS = len(d.STUDENT_T_975) + 1
EXTRA_DRAWS = 3


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """How many draws to take: a number, or one and three more where any question is uncertain.

    `entropy_threshold` is in nats, compared with the first draw's entropy. `lead` sends the first of several
    draws ahead, so that the others find its prompt in the engine's prefix cache.
    """

    samples: int | Literal["auto"] = "auto"
    entropy_threshold: float = 0.1
    lead: bool = False

    def __post_init__(self) -> None:
        if self.samples != "auto" and not 1 <= self.samples <= MAX_DRAWS:
            raise ValueError(f"samples must be auto or from 1 to {MAX_DRAWS}, got {self.samples}")
        if not self.entropy_threshold >= 0:
            raise ValueError(f"the entropy threshold must be 0 nats or more, got {self.entropy_threshold}")


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A group about to be read: its prompt, its noise seed, and the tokens that may fill its slots."""

    group: Group
    prompt: Prompt
    seed: bytes
    noise_ids: Sequence[int]
    mask: int | None = None  # fill slots with this token instead of noise

    def request(self, draw: int) -> ReadRequest:
        """Return the read of one draw. The same job and draw always give the same bytes."""
        canvas = self.group.canvas
        if self.mask is None:
            filled = fill_with_noise(canvas, self.seed, draw, self.noise_ids)
        else:
            filled = fill_with_mask(canvas, self.mask)
        return ReadRequest(self.prompt, filled, canvas.positions, canvas.label_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """Reads that may run in parallel. Where `extra` is set, the driver may answer `ReadsSkipped` instead."""

    requests: tuple[ReadRequest, ...]
    extra: bool = False


@dataclass(frozen=True, slots=True)
class ReadsSkipped:
    """Extra reads that did not come back: they failed, or would have come too late."""

    reason: str


Reply = Sequence[Read] | ReadsSkipped


@dataclass(frozen=True, slots=True)
class GroupReading:
    """What the reads of one group said: for each draw, a distribution for each question."""

    group: Group
    draws: tuple[tuple[Distribution, ...], ...]
    preferred: tuple[int | None, ...]  # per question: the id that the model itself liked best
    reads: tuple[Read, ...]
    extended_by: tuple[str, ...]  # the questions whose entropy asked for extra draws
    skipped: ReadsSkipped | None


@dataclass(frozen=True, slots=True)
class Decision:
    """All answers, by question id in the caller's order, with what it took to get them."""

    answers: Mapping[str, Answer]
    plan: Plan
    readings: tuple[GroupReading, ...]
    warnings: tuple[DecisionWarning, ...]

    @property
    def reads(self) -> tuple[Read, ...]:
        """Every read that was made."""
        return tuple(read for reading in self.readings for read in reading.reads)

    @property
    def extended_by(self) -> tuple[str, ...]:
        """The questions whose uncertainty made more draws."""
        return tuple(name for r in self.readings if r.skipped is None for name in r.extended_by)


def read_group(job: GroupJob, policy: ReadPolicy) -> Generator[Batch, Reply, GroupReading]:
    """Read a group once, or `samples` times; where any question is uncertain, draw again and pool.

    A slot filled with the mask token makes every draw the same, so such a group is read once.

    Raises:
        UpstreamProtocolError: a reply, other than to extra reads, does not hold what was asked for.
    """
    wanted = 1 if policy.samples == "auto" or job.mask is not None else policy.samples
    drawn: list[_Drawn] = []
    for draws in _rounds(wanted, policy.lead):
        batch = Batch(tuple(job.request(draw) for draw in draws))
        reply = yield batch
        assert not isinstance(reply, ReadsSkipped), "only extra reads may be skipped"
        drawn += _drawn(job.group, batch, reply)
    uncertain = tuple(
        name
        for name, first in zip(job.group.identifiers, drawn[0].distributions, strict=True)
        if policy.samples == "auto" and job.mask is None and first.entropy > policy.entropy_threshold
    )
    skipped = None
    if uncertain:
        batch = Batch(tuple(job.request(draw) for draw in range(1, 1 + EXTRA_DRAWS)), extra=True)
        reply = yield batch
        if isinstance(reply, ReadsSkipped):
            skipped = reply
        else:
            try:
                drawn += _drawn(job.group, batch, reply)
            except UpstreamProtocolError as error:
                skipped = ReadsSkipped(f"more reads failed: {error.message.rstrip('.')}")
    return GroupReading(
        group=job.group,
        draws=tuple(each.distributions for each in drawn),
        preferred=tuple(row.top for row in drawn[0].read.rows),
        reads=tuple(each.read for each in drawn),
        extended_by=uncertain,
        skipped=skipped,
    )


def conclude(
    schema: Schema, plan: Plan, readings: Iterable[GroupReading], token_text: Callable[[int], str]
) -> Decision:
    """Put the groups' readings together into answers in the caller's order.

    `token_text` tells what a token reads as, for the warning that the model preferred another one.
    """
    readings = tuple(readings)
    found: dict[str, Answer] = {}
    warnings: list[DecisionWarning] = []
    for reading in readings:
        if reading.skipped is not None:
            warnings.append(
                DecisionWarning(
                    "extra_reads_skipped", f"The answer rests on one draw: {reading.skipped.reason}."
                )
            )
        for index, (name, asked) in enumerate(
            zip(reading.group.identifiers, reading.group.asked, strict=True)
        ):
            answer = fold_draws(asked.question, [draw[index] for draw in reading.draws])
            found[name] = answer
            warnings += warnings_about(name, asked, answer, reading.preferred[index], token_text)
    answers = {name: found[name] for name, _ in schema.questions}
    return Decision(answers, plan, readings, tuple(warnings))


def _rounds(wanted: int, lead: bool) -> list[range]:
    if lead and wanted > 1:
        return [range(1), range(1, wanted)]
    return [range(wanted)]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One draw: its read, and what that says about each question."""

    read: Read
    distributions: tuple[Distribution, ...]


def _drawn(group: Group, batch: Batch, reply: Sequence[Read]) -> list[_Drawn]:
    reads = [checked(request, read) for request, read in zip(batch.requests, reply, strict=True)]
    return [_Drawn(read, _fold(group, read)) for read in reads]


def _fold(group: Group, read: Read) -> tuple[Distribution, ...]:
    return tuple(
        d.distribution([[row.logprobs[i] for i in option] for option in slot.options])
        for slot, row in zip(group.canvas.slots, read.rows, strict=True)
    )
