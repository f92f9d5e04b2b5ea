"""Performing what the core asks for: batches of reads, under permits and a deadline."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from structured_server import tracing
from structured_server.admission import DEFAULT_LANE, NOTHING, Admission, Lane, Weight
from structured_server.backends import Backend, Engine, Generation, Relayed
from structured_server.core.policy import ReadPolicy
from structured_server.core.reading import Batch, GroupJob, GroupReading, ReadsSkipped, Reply, read_group
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.course import Course, Lap
from structured_server.errors import Overloaded, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from structured_server.jobs import Frame
from structured_server.metrics import Metrics
from structured_server.parallel import together

WORTH_A_RETRY = 0.4
"""The share of the time to the deadline that must be left for something to be done again."""

ATTEMPTS = 3

RETRY_S = 3.0
PASSING = ("unreachable", "timeout", "failed", "protocol")
"""Kinds of upstream errors that another attempt may not meet. Another engine may not refuse what one did."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Piece:
    """The reads of a part of a batch, with its seconds in the queue and at the engine."""

    reads: list[Read]
    queue: float
    engine: float


class _GivenUp(UpstreamTimeout):
    """An attempt was not waited for any longer."""


class Performer:
    """Performs reads and generations with one backend."""

    def __init__(self, backend: Backend, admission: Admission, metrics: Metrics) -> None:
        self._backend = backend
        self._admission = admission
        self._metrics = metrics

    def course(self, deadline: float, seconds: float, lane: Lane = DEFAULT_LANE) -> Course:
        """Begin a decision that has so many seconds to its deadline."""
        return Course(deadline, seconds, Admission(self._admission.engine, max_waiting=sys.maxsize), lane)

    def expect(self, frame: Frame, policy: ReadPolicy, course: Course) -> None:
        """Refuse a decision now whose first stage would wait too long for all of its permits.

        Raises:
            Overloaded: it would.
        """
        draws = 1 if policy.samples == "auto" or frame.plan.options.slot_fill == "mask" else policy.samples
        weight = NOTHING
        for group, chunks in zip(frame.plan.stages[0], frame.chunks, strict=False):  # which go on
            reads = draws * len(chunks)
            weight += Weight(reads * group.canvas.width, reads)
        if frame.plan.options.think:
            weight += self._weight_of_writing() * len(frame.plan.stages[0])
        with self._counting():
            left_s = course.deadline - asyncio.get_running_loop().time()
            self._admission.expect(weight, lane=course.lane, left_s=left_s)

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
        async with self._permit(self._weight_of_writing(), course, course.lap(), writes=True):
            written = await self._attempt(
                prompt, course, lambda engine: engine.generate(prompt, tokens, stop), bounded=False
            )
        self._metrics.thoughts.inc()
        return written

    @asynccontextmanager
    async def chat(self, body: bytes, lane: Lane = DEFAULT_LANE) -> AsyncIterator[Relayed]:
        """Have the engine answer a chat request. It holds a permit for as long as the reply is open.

        Raises:
            Overloaded: there is no room in the queue.
            UpstreamError: the engine failed.
        """
        course = self.course(math.inf, math.inf, lane)
        async with (
            self._permit(self._weight_of_writing(), course, Lap(), writes=True),
            self._backend.chat(body) as relayed,
        ):
            yield relayed

    def _weight_of_writing(self) -> Weight:
        return Weight(self._backend.capabilities.widths[-1], 1)

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
            return ReadsSkipped("the queue for more reads was too long")
        except UpstreamError as error:
            return ReadsSkipped(f"more reads failed: {error.message.rstrip('.')}")

    async def _perform(self, batch: Batch, course: Course, lap: Lap) -> list[Read]:
        """Perform a batch, cut into pieces that one engine can read at once."""
        pieces = _pieces(batch.requests, self._admission.engine)
        done = await together([self._perform_piece(piece, batch.extra, course) for piece in pieces])
        lap.queue += max(piece.queue for piece in done)
        lap.last_batch = max(piece.engine for piece in done)
        lap.engine += lap.last_batch
        return [read for piece in done for read in piece.reads]

    async def _perform_piece(self, piece: Sequence[ReadRequest], extra: bool, course: Course) -> _Piece:
        lap, prompt = Lap(), piece[0].prompt
        kind = "extra" if extra else "first"
        async with self._permit(_weight(piece), course, lap, extra=extra):
            with tracing.span("reads", kind=kind, count=len(piece)):
                if extra:
                    reads = await self._engine(prompt, course).read(piece)
                else:
                    reads = await self._first_reads(piece, course)
        self._metrics.reads.labels(kind).inc(len(piece))
        self._metrics.batch_seconds.labels(kind).observe(lap.engine)
        self._metrics.queue_seconds.observe(lap.queue)
        return _Piece(reads, lap.queue, lap.engine)

    async def _first_reads(self, piece: Sequence[ReadRequest], course: Course) -> list[Read]:
        """Perform reads that a decision needs. Of separate ones, those are made again that failed."""
        prompt = piece[0].prompt
        parts = [[request] for request in piece] if self._backend.capabilities.separate else [piece]

        async def attempt(part: Sequence[ReadRequest]) -> list[Read]:
            return await self._attempt(prompt, course, lambda engine: engine.read(part), bounded=True)

        return [read for reads in await together([attempt(part) for part in parts]) for read in reads]

    def _engine(self, prompt: Prompt, course: Course) -> Engine:
        """Return the engine that a decision's reads go to: the same for all of them."""
        if course.engine is None:
            course.key = prompt.routing_key
            course.engine = self._backend.route(course.key)
        return course.engine

    async def _attempt(
        self, prompt: Prompt, course: Course, work: Callable[[Engine], Awaitable[T]], *, bounded: bool
    ) -> T:
        """Have an engine do the work, and again where that failed early: elsewhere, if there is another.

        Where there is, an engine that says nothing is not waited for until it is too late to ask the other,
        unless the work is not to be `bounded`.
        """
        engine = self._engine(prompt, course)
        for to_come in reversed(range(ATTEMPTS)):
            try:
                async with _bounded(engine, self._patience(engine, course, to_come) if bounded else None):
                    return await work(engine)
            except UpstreamError as error:
                if not to_come:
                    raise
                engine = self._next(engine, course, error)
                self._metrics.upstream_errors.labels(error.kind).inc()
                self._metrics.retries.inc()
        raise AssertionError("the last attempt returns or raises")

    def _patience(self, engine: Engine, course: Course, to_come: int) -> float | None:
        """Return the seconds that an attempt is waited for, before so many more; None: to the deadline."""
        left = course.deadline - asyncio.get_running_loop().time()
        spare = left - WORTH_A_RETRY * course.seconds
        if to_come and spare > 0 and self._elsewhere(course, engine) is not engine:
            return spare / to_come
        again = to_come < ATTEMPTS - 1
        return RETRY_S if again and left > RETRY_S else None

    def _next(self, engine: Engine, course: Course, error: UpstreamError) -> Engine:
        """Return who does the work again after this error.

        Raises:
            UpstreamError: this error, where it is too late, or another attempt would meet it too.
        """
        left = course.deadline - asyncio.get_running_loop().time()
        if left < WORTH_A_RETRY * course.seconds and not isinstance(error, _GivenUp):  # in time, if only just
            raise error
        other = course.engine  # another of its reads may have moved it already
        if other is None or other is engine:
            other = self._elsewhere(course, engine)
        if error.kind not in PASSING and (error.kind != "rejected" or other is engine):
            raise error
        course.engine = other
        return other

    def _elsewhere(self, course: Course, engine: Engine) -> Engine:
        """Return another engine for the decision, or the same where there is no other."""
        try:
            return self._backend.route(course.key, avoid=engine)
        except UpstreamUnreachable:
            return engine

    @asynccontextmanager
    async def _permit(
        self, weight: Weight, course: Course, lap: Lap, *, extra: bool = False, writes: bool = False
    ) -> AsyncIterator[None]:
        """Hold permits for the work inside, measure it, and count its failure."""
        loop = asyncio.get_running_loop()
        begun = course.begun and not extra
        with self._counting():
            async with course.own.permit(weight):
                asked = loop.time()
                async with self._admission.permit(
                    weight, extra=extra, lane=course.lane, begun=begun, writes=writes
                ):
                    course.begun = True
                    started = loop.time()
                    lap.queue += started - asked
                    tracing.passed("queue", started - asked)
                    yield
                    lap.engine += loop.time() - started

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count what was shed, and what the engine failed at."""
        try:
            yield
        except Overloaded as error:
            self._metrics.shed.labels(error.reason).inc()
            raise
        except UpstreamError as error:
            self._metrics.upstream_errors.labels(error.kind).inc()
            raise


@asynccontextmanager
async def _bounded(engine: Engine, seconds: float | None) -> AsyncIterator[None]:
    """Bound the time of one attempt, and let the engine know where it took longer."""
    if seconds is None:
        yield
        return
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        engine.given_up()
        raise _GivenUp(f"the engine did not answer within {seconds:.1f} s.") from None


def _weight(requests: Sequence[ReadRequest]) -> Weight:
    return Weight(sum(request.width for request in requests), len(requests))


def _pieces(requests: Sequence[ReadRequest], capacity: Weight) -> list[Sequence[ReadRequest]]:
    """Cut reads of one width into runs that fit what an engine can do."""
    size = max(1, min(capacity.reads, capacity.positions // requests[0].width))
    return [requests[start : start + size] for start in range(0, len(requests), size)]
