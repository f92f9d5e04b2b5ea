"""Performing what the core asks for: batches of reads, under permits and a deadline."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from structured_server.admission import Admission, Weight
from structured_server.backends import Backend, Generation, Relayed
from structured_server.core.policy import ReadPolicy
from structured_server.core.reading import Batch, GroupJob, GroupReading, ReadsSkipped, Reply, read_group
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.errors import Overloaded, UpstreamError
from structured_server.metrics import Metrics
from structured_server.parallel import together


@dataclass(slots=True)
class Lap:
    """Seconds that one group spent waiting for permits, and waiting for the engine."""

    queue: float = 0.0
    engine: float = 0.0
    last_batch: float = 0.0


@dataclass(slots=True)
class Course:
    """One decision on its way: its deadline on the loop's clock, and its legs, one after the other.

    A leg holds the laps that are run at the same time. `own` bounds what the whole decision asks for at once
    to what there is, so that on an idle server none is too large to be served.
    """

    deadline: float
    own: Admission
    legs: list[list[Lap]] = field(default_factory=list)

    def leg(self) -> None:
        """Begin what comes after all that was done so far."""
        self.legs.append([])

    def lap(self) -> Lap:
        """Begin the lap of a group."""
        lap = Lap()
        self.legs[-1].append(lap)
        return lap

    @property
    def queue(self) -> float:
        """Seconds that it waited for permits: in each leg the lap that waited longest."""
        return sum(max((lap.queue for lap in leg), default=0.0) for leg in self.legs)

    @property
    def engine(self) -> float:
        """Seconds that it waited for the engine, likewise."""
        return sum(max((lap.engine for lap in leg), default=0.0) for leg in self.legs)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The reads of a part of a batch, with its seconds in the queue and at the engine."""

    reads: list[Read]
    queue: float
    engine: float


class Performer:
    """Performs reads and generations with one backend."""

    def __init__(self, backend: Backend, admission: Admission, metrics: Metrics) -> None:
        self._backend = backend
        self._admission = admission
        self._metrics = metrics

    def course(self, deadline: float) -> Course:
        """Begin a decision."""
        return Course(deadline, Admission(self._admission.capacity, max_waiting=sys.maxsize))

    async def read(self, job: GroupJob, policy: ReadPolicy, course: Course) -> GroupReading:
        """Drive one group's generator to its end.

        Raises:
            Overloaded: there is no room in the queue for the first reads.
            UpstreamError: a first read failed.
        """
        lap = course.lap()
        steps = read_group(job, policy)
        batch = next(steps)
        while True:
            reply: Reply
            if batch.extra:
                reply = await self._perform_if_possible(batch, course, lap)
            else:
                reply = await self._perform(batch, course, lap)
            try:
                batch = steps.send(reply)
            except StopIteration as end:
                reading: GroupReading = end.value
                return reading
            except UpstreamError as error:  # the reply does not hold what was asked for
                self._metrics.upstream_errors.labels(error.kind).inc()
                raise

    async def generate(self, prompt: Prompt, tokens: int, stop: int, course: Course) -> Generation:
        """Have the model write up to so many tokens, or up to the token `stop`.

        Raises:
            Overloaded: there is no room in the queue.
            UpstreamError: the engine failed.
        """
        weight = Weight(self._backend.capabilities.widths[-1], 1)
        async with self._permit(weight, course.own, course.lap(), extra=False):
            written = await self._backend.generate(prompt, tokens, stop)
        self._metrics.thoughts.inc()
        return written

    @asynccontextmanager
    async def chat(self, body: bytes) -> AsyncIterator[Relayed]:
        """Have the engine answer a chat request. It holds a permit for as long as the reply is open.

        Raises:
            Overloaded: there is no room in the queue.
            UpstreamError: the engine failed.
        """
        weight = Weight(self._backend.capabilities.widths[-1], 1)
        own = Admission(self._admission.capacity, max_waiting=0)
        async with self._permit(weight, own, Lap(), extra=False), self._backend.chat(body) as relayed:
            yield relayed

    async def _perform_if_possible(self, batch: Batch, course: Course, lap: Lap) -> Reply:
        """Perform extra reads, unless they fail or would miss the deadline."""
        left = course.deadline - asyncio.get_running_loop().time()
        if left < lap.last_batch:
            return ReadsSkipped("more reads would have missed the deadline")
        try:
            # What is left over serves to conclude and answer.
            async with asyncio.timeout(left - min(0.05, left / 10)):
                return await self._perform(batch, course, lap)
        except TimeoutError:
            return ReadsSkipped("more reads missed the deadline")
        except Overloaded:
            return ReadsSkipped("the queue for more reads was full")
        except UpstreamError as error:
            return ReadsSkipped(f"more reads failed: {error.message.rstrip('.')}")

    async def _perform(self, batch: Batch, course: Course, lap: Lap) -> list[Read]:
        """Perform a batch, cut into pieces that the capacity covers."""
        pieces = _pieces(batch.requests, self._admission.capacity)
        done = await together([self._perform_piece(piece, batch.extra, course.own) for piece in pieces])
        lap.queue += max(piece.queue for piece in done)
        lap.last_batch = max(piece.engine for piece in done)
        lap.engine += lap.last_batch
        return [read for piece in done for read in piece.reads]

    async def _perform_piece(self, piece: Sequence[ReadRequest], extra: bool, own: Admission) -> _Piece:
        lap = Lap()
        async with self._permit(_weight(piece), own, lap, extra=extra):
            reads = await self._backend.read(piece)
        kind = "extra" if extra else "first"
        self._metrics.reads.labels(kind).inc(len(piece))
        self._metrics.batch_seconds.labels(kind).observe(lap.engine)
        self._metrics.queue_seconds.observe(lap.queue)
        return _Piece(reads, lap.queue, lap.engine)

    @asynccontextmanager
    async def _permit(self, weight: Weight, own: Admission, lap: Lap, *, extra: bool) -> AsyncIterator[None]:
        """Hold permits for the work inside, measure it, and count its failure."""
        loop = asyncio.get_running_loop()
        try:
            async with own.permit(weight):
                asked = loop.time()
                async with self._admission.permit(weight, extra=extra):
                    started = loop.time()
                    lap.queue += started - asked
                    yield
                    lap.engine += loop.time() - started
        except UpstreamError as error:
            self._metrics.upstream_errors.labels(error.kind).inc()
            raise


def _weight(requests: Sequence[ReadRequest]) -> Weight:
    return Weight(sum(request.width for request in requests), len(requests))


def _pieces(requests: Sequence[ReadRequest], capacity: Weight) -> list[Sequence[ReadRequest]]:
    """Cut reads of one width into runs that fit the capacity."""
    size = max(1, min(capacity.reads, capacity.positions // requests[0].width))
    return [requests[start : start + size] for start in range(0, len(requests), size)]
