"""Reading one group: a generator that asks for reads and folds them. It asks, it never calls."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from structured_server.core import distribution as d
from structured_server.core.distribution import Distribution
from structured_server.core.plan import Group
from structured_server.core.policy import UNTEMPERED, ByType, ReadPolicy
from structured_server.core.prompt import Asked
from structured_server.core.reads import (
    Prompt,
    Read,
    ReadRequest,
    Thought,
    checked,
    drift,
    fill_with_mask,
    fill_with_noise,
    merge,
)
from structured_server.errors import UpstreamProtocolError

LARGEST_DRIFT = 0.05
"""Reads of one wide label set that are further apart than this, in nats, share no scale."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A group's prompt with its options in one order, and each question as asked there."""

    prompt: Prompt
    asked: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A group about to be read: its prompts, its noise seed, and the tokens that may fill its slots.

    Draw k reads the k-th of the `arrangements`, in a circle. `chunks` are the label ids, cut to what one read
    may ask for. Where `may_extend` is not set, no extra draws are made.
    """

    group: Group
    arrangements: tuple[Arrangement, ...]
    seed: bytes
    noise_ids: Sequence[int]
    chunks: tuple[tuple[int, ...], ...]
    mask: int | None = None  # fill slots with this token instead of noise
    steps: int = 1
    constrained: bool = False
    may_extend: bool = True
    thought: Thought | None = None

    def request(self, draw: int, chunk: int = 0) -> ReadRequest:
        """Return a read of one draw. The same job, draw and chunk always give the same bytes."""
        canvas = self.group.canvas
        if self.mask is None:
            filled = fill_with_noise(canvas, self.seed, draw, self.noise_ids)
        else:
            filled = fill_with_mask(canvas, self.mask)
        prompt = self.arrangements[draw % len(self.arrangements)].prompt
        return ReadRequest(prompt, filled, canvas.positions, self.chunks[chunk], self.steps, self.constrained)

    def options(self, draw: int) -> list[list[tuple[int, ...]]]:
        """Return for each slot the label ids of each option, in the options' own order."""
        turned = self.arrangements[draw % len(self.arrangements)].asked
        found = []
        for slot, straight, each in zip(self.group.canvas.slots, self.group.asked, turned, strict=True):
            ids = dict(zip(straight.labels, slot.options, strict=True))
            found.append([ids[label] for label in each.labels])
        return found


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
    """What the reads of one group said: for each draw, a distribution for each question.

    `drift` is how far, in nats, reads that must share one scale were apart after all.
    """

    job: GroupJob
    draws: tuple[tuple[Distribution, ...], ...]
    first_entropies: tuple[float, ...]  # per question, in nats: of the first draw, before any temperature
    preferred: tuple[int | None, ...]  # per question: the id that the model itself liked best
    reads: tuple[Read, ...]
    extended_by: tuple[str, ...]  # the questions whose entropy asked for extra draws
    skipped: ReadsSkipped | None
    drift: float = 0.0

    @property
    def group(self) -> Group:
        """The group that was read."""
        return self.job.group


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One draw: its reads merged, all that were made for it, and how far they were apart."""

    draw: int
    read: Read
    reads: tuple[Read, ...]
    drift: float


def read_group(job: GroupJob, policy: ReadPolicy) -> Generator[Batch, Reply, GroupReading]:
    """Read a group once, or `samples` times; where any question is uncertain, draw again and pool.

    A slot filled with the mask token makes every draw the same, so such a group is read once.

    Raises:
        UpstreamProtocolError: a reply, other than to extra reads, does not hold what was asked for.
    """
    wanted = 1 if policy.samples == "auto" or job.mask is not None else policy.samples
    drawn: list[_Drawn] = []
    for numbers in _rounds(wanted, policy.lead):
        got = yield from _draw(job, numbers, extra=False)
        assert not isinstance(got, ReadsSkipped), "only extra reads may be skipped"
        drawn += got
    first = _fold(job, drawn[0], UNTEMPERED)
    first_entropies = tuple(each.entropy for each in first)
    uncertain = tuple(
        name
        for name, asked, entropy in zip(job.group.identifiers, job.group.asked, first_entropies, strict=True)
        if policy.samples == "auto"
        and job.mask is None
        and policy.extra_draws
        and entropy > policy.entropy_thresholds.of(asked.question)
    )
    temperatures = policy.temperatures
    draws = [first] if temperatures == UNTEMPERED else [_fold(job, drawn[0], temperatures)]
    draws += [_fold(job, each, temperatures) for each in drawn[1:]]
    skipped = None
    if uncertain and not job.may_extend:
        skipped = ReadsSkipped(
            f"{policy.extra_draws} more would have passed the limit of reads, read.max_reads"
        )
    elif uncertain:
        got = yield from _draw(job, range(1, policy.most_draws), extra=True)
        if isinstance(got, ReadsSkipped):
            skipped = got
        else:
            try:
                draws += [_fold(job, each, temperatures) for each in got]
                drawn += got
            except UpstreamProtocolError as error:
                skipped = _failed(error)
    return GroupReading(
        job=job,
        draws=tuple(draws),
        first_entropies=first_entropies,
        preferred=tuple(row.top for row in drawn[0].read.rows),
        reads=tuple(read for each in drawn for read in each.reads),
        extended_by=uncertain,
        skipped=skipped,
        drift=max(each.drift for each in drawn),
    )


def _rounds(wanted: int, lead: bool) -> list[range]:
    if lead and wanted > 1:
        return [range(1), range(1, wanted)]
    return [range(wanted)]


def _draw(
    job: GroupJob, draws: range, *, extra: bool
) -> Generator[Batch, Reply, list[_Drawn] | ReadsSkipped]:
    """Read the draws, first the first chunk of each: it warms the prefix cache for the others."""
    try:
        firsts = yield from _ask(job, [(draw, 0) for draw in draws], extra)
        if isinstance(firsts, ReadsSkipped):
            return firsts
        others = [(draw, chunk) for draw in draws for chunk in range(1, len(job.chunks))]
        if not others:
            return [_Drawn(draw, read, (read,), 0.0) for draw, read in zip(draws, firsts, strict=True)]
        rest = yield from _ask(job, others, extra)
        if isinstance(rest, ReadsSkipped):
            return rest
        found = dict(zip(others, rest, strict=True))
        found.update(zip([(draw, 0) for draw in draws], firsts, strict=True))
        made = {draw: [found[draw, chunk] for chunk in range(len(job.chunks))] for draw in draws}
        astray = [place for place in others if drift(found[place[0], 0], found[place]) > LARGEST_DRIFT]
        if astray:
            again = yield from _ask(job, astray, extra)
            if isinstance(again, ReadsSkipped):
                return again
            for (draw, chunk), read in zip(astray, again, strict=True):
                found[draw, chunk] = read
                made[draw].append(read)
    except UpstreamProtocolError as error:
        if not extra:
            raise
        return _failed(error)
    return [
        _Drawn(
            draw,
            merge([found[draw, chunk] for chunk in range(len(job.chunks))]),
            tuple(made[draw]),
            max(drift(found[draw, 0], found[draw, chunk]) for chunk in range(1, len(job.chunks))),
        )
        for draw in draws
    ]


def _failed(error: UpstreamProtocolError) -> ReadsSkipped:
    return ReadsSkipped(f"more reads failed: {error.message.rstrip('.')}")


def _ask(
    job: GroupJob, places: Iterable[tuple[int, int]], extra: bool
) -> Generator[Batch, Reply, list[Read] | ReadsSkipped]:
    batch = Batch(tuple(job.request(draw, chunk) for draw, chunk in places), extra)
    reply = yield batch
    if isinstance(reply, ReadsSkipped):
        return reply
    return [checked(request, read) for request, read in zip(batch.requests, reply, strict=True)]


def _fold(job: GroupJob, drawn: _Drawn, temperatures: ByType) -> tuple[Distribution, ...]:
    return tuple(
        d.distribution(
            [[row.logprobs[i] for i in option] for option in options],
            whole_vocabulary=not job.constrained,
            temperature=temperatures.of(asked.question),
        )
        for row, options, asked in zip(drawn.read.rows, job.options(drawn.draw), job.group.asked, strict=True)
    )
