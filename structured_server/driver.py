"""The driver: runs decisions against a backend, under permits and a deadline."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from structured_server.admission import Admission, Weight
from structured_server.backends import Backend
from structured_server.core.answers import DecisionWarning
from structured_server.core.decision import (
    Batch,
    Decision,
    GroupJob,
    GroupReading,
    ReadPolicy,
    ReadsSkipped,
    Reply,
    conclude,
    read_group,
)
from structured_server.core.plan import Capabilities, Group, Plan, ReadOptions, compile_plan
from structured_server.core.prompt import build_prompt
from structured_server.core.provenance import fingerprint, question_set_id
from structured_server.core.questions import Schema
from structured_server.core.reads import Prompt, Read, ReadRequest, derive_seed
from structured_server.core.tokens import Tokenizer
from structured_server.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    StateTooLong,
    UpstreamError,
)
from structured_server.metrics import Metrics
from structured_server.parallel import together

PLANS_KEPT = 512
LONG_STATE = 8_192  # characters from which tokenising moves off the event loop


@dataclass(frozen=True, slots=True)
class Query:
    """What is to be decided, whichever wire format it came in."""

    schema: Schema
    state: str
    options: ReadOptions
    policy: ReadPolicy
    seed: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision with what the driver knows beside it. Times are in milliseconds."""

    decision: Decision
    state_tokens: int
    question_set: str
    fingerprint: str
    queue_ms: float
    engine_ms: float
    total_ms: float


@dataclass(slots=True)
class _Lap:
    """Seconds that one group spent waiting for permits, and waiting for the engine.

    `own` bounds what the whole decision asks for at once to what there is, so that on an idle server none is
    too large to be served.
    """

    own: Admission
    queue: float = 0.0
    engine: float = 0.0
    last_batch: float = 0.0


@dataclass(frozen=True, slots=True)
class _Piece:
    """The reads of a part of a batch, with its seconds in the queue and at the engine."""

    reads: list[Read]
    queue: float
    engine: float


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A plan with the length of each group's prompt around the state, in tokens."""

    plan: Plan
    question_set: str
    overheads: tuple[int, ...]


def no_caveats(_: Schema) -> Sequence[DecisionWarning]:
    """Return nothing: most models need no warning whatever they are asked."""
    return ()


class Driver:
    """Decides queries with one backend. Each decision warns of what `caveats` finds in its questions."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        admission: Admission,
        metrics: Metrics,
        *,
        surroundings: Sequence[str] = (),
        caveats: Callable[[Schema], Sequence[DecisionWarning]] = no_caveats,
    ) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._admission = admission
        self._metrics = metrics
        self._surroundings = (backend.name, tokenizer.fingerprint, *surroundings)
        self._caveats = caveats
        self._compile = lru_cache(maxsize=PLANS_KEPT)(self._compile_anew)

    async def decide(self, query: Query) -> Outcome:
        """Read every group of the query's plan, in parallel, and conclude.

        Raises:
            CallerError: the questions or the state cannot be read as asked.
            Overloaded: there is no room in the queue.
            DeadlineExceeded: the first reads did not come back in time.
            UpstreamError: a first read failed.
        """
        begun = time.monotonic()
        deadline = asyncio.get_running_loop().time() + query.deadline_s
        compiled = self._compile(query.schema, query.options, self._backend.capabilities)
        jobs, state_tokens = await self._prepare(compiled, query)
        own = Admission(self._admission.capacity, max_waiting=sys.maxsize)
        laps = [_Lap(own) for _ in jobs]
        try:
            async with asyncio.timeout_at(deadline):
                readings = await together(
                    [
                        self._read(job, query.policy, deadline, lap)
                        for job, lap in zip(jobs, laps, strict=True)
                    ]
                )
        except TimeoutError:
            raise DeadlineExceeded(
                f"no answer within the deadline of {query.deadline_s * 1000:.0f} ms.",
                hint="Raise deadline_ms, or send fewer requests at a time.",
            ) from None
        decision = conclude(query.schema, compiled.plan, readings, self._tokenizer.token_text)
        decision = replace(decision, warnings=(*self._caveats(query.schema), *decision.warnings))
        self._metrics.observe(decision)
        return Outcome(
            decision=decision,
            state_tokens=state_tokens,
            question_set=compiled.question_set,
            fingerprint=fingerprint(query.schema, compiled.plan, query.policy, self._surroundings),
            queue_ms=1000 * max(lap.queue for lap in laps),
            engine_ms=1000 * max(lap.engine for lap in laps),
            total_ms=1000 * (time.monotonic() - begun),
        )

    def _compile_anew(self, schema: Schema, options: ReadOptions, capabilities: Capabilities) -> _Compiled:
        plan = compile_plan(schema, options, capabilities, self._tokenizer)
        overheads = tuple(len(self._prompt(group, options, "").ids) for group in plan.groups)
        return _Compiled(plan, question_set_id(schema), overheads)

    async def _prepare(self, compiled: _Compiled, query: Query) -> tuple[list[GroupJob], int]:
        """Tokenise the prompts, off the event loop where the state is long, and count the state's tokens."""
        options = query.options
        groups = compiled.plan.groups
        if len(query.state) * len(groups) > LONG_STATE:
            prompts = await asyncio.to_thread(
                lambda: [self._prompt(group, options, query.state) for group in groups]
            )
        else:
            prompts = [self._prompt(group, options, query.state) for group in groups]
        room = self._backend.capabilities.max_model_len
        for group, prompt, overhead in zip(groups, prompts, compiled.overheads, strict=True):
            if room is not None and len(prompt.ids) + group.canvas.width > room:
                raise _too_long(len(prompt.ids), overhead, group.canvas.width, room)
        mask = self._tokenizer.mask if options.slot_fill == "mask" else None
        jobs = [
            GroupJob(
                group,
                prompt,
                derive_seed(query.seed, query.state, group.content),
                self._tokenizer.noise_ids,
                mask,
            )
            for group, prompt in zip(groups, prompts, strict=True)
        ]
        return jobs, max(0, len(prompts[0].ids) - compiled.overheads[0])

    def _prompt(self, group: Group, options: ReadOptions, state: str) -> Prompt:
        tokenizer = self._tokenizer
        segments = build_prompt(tokenizer.chat, options.layout, options.template, group.asked, state)
        ids = tokenizer.encode_prompt(segments)
        # The empty thought block stands once: at the end of the prompt, or at the head of the canvas.
        if options.scaffold == "prompt" and not tokenizer.scaffold_in_prompt:
            ids += tokenizer.scaffold
        elif options.scaffold == "canvas" and tokenizer.scaffold_in_prompt:
            ids = ids[: len(ids) - len(tokenizer.scaffold)]
        return Prompt(ids, segments)

    async def _read(self, job: GroupJob, policy: ReadPolicy, deadline: float, lap: _Lap) -> GroupReading:
        """Drive one group's generator to its end."""
        steps = read_group(job, policy)
        batch = next(steps)
        while True:
            reply: Reply
            if batch.extra:
                reply = await self._perform_if_possible(batch, deadline, lap)
            else:
                reply = await self._perform(batch, lap)
            try:
                batch = steps.send(reply)
            except StopIteration as end:
                reading: GroupReading = end.value
                return reading
            except UpstreamError as error:  # the reply does not hold what was asked for
                self._metrics.upstream_errors.labels(error.kind).inc()
                raise

    async def _perform_if_possible(self, batch: Batch, deadline: float, lap: _Lap) -> Reply:
        """Perform extra reads, unless they fail or would miss the deadline."""
        left = deadline - asyncio.get_running_loop().time()
        if left < lap.last_batch:
            return ReadsSkipped("more reads would have missed the deadline")
        try:
            # What is left over serves to conclude and answer.
            async with asyncio.timeout(left - min(0.05, left / 10)):
                return await self._perform(batch, lap)
        except TimeoutError:
            return ReadsSkipped("more reads missed the deadline")
        except Overloaded:
            return ReadsSkipped("the queue for more reads was full")
        except UpstreamError as error:
            return ReadsSkipped(f"more reads failed: {error.message.rstrip('.')}")

    async def _perform(self, batch: Batch, lap: _Lap) -> list[Read]:
        """Perform a batch, cut into pieces that the capacity covers."""
        pieces = _pieces(batch.requests, self._admission.capacity)
        done = await together([self._perform_piece(piece, batch.extra, lap.own) for piece in pieces])
        lap.queue += max(piece.queue for piece in done)
        lap.last_batch = max(piece.engine for piece in done)
        lap.engine += lap.last_batch
        return [read for piece in done for read in piece.reads]

    async def _perform_piece(self, piece: Sequence[ReadRequest], extra: bool, own: Admission) -> _Piece:
        loop = asyncio.get_running_loop()
        weight = _weight(piece)
        try:
            async with own.permit(weight):
                asked = loop.time()
                async with self._admission.permit(weight, extra=extra):
                    started = loop.time()
                    reads = await self._backend.read(piece)
                    ended = loop.time()
        except UpstreamError as error:
            self._metrics.upstream_errors.labels(error.kind).inc()
            raise
        kind = "extra" if extra else "first"
        self._metrics.reads.labels(kind).inc(len(piece))
        self._metrics.batch_seconds.labels(kind).observe(ended - started)
        self._metrics.queue_seconds.observe(started - asked)
        return _Piece(reads, started - asked, ended - started)


def _weight(requests: Sequence[ReadRequest]) -> Weight:
    return Weight(sum(request.width for request in requests), len(requests))


def _pieces(requests: Sequence[ReadRequest], capacity: Weight) -> list[Sequence[ReadRequest]]:
    """Cut reads of one width into runs that fit the capacity."""
    size = max(1, min(capacity.reads, capacity.positions // requests[0].width))
    return [requests[start : start + size] for start in range(0, len(requests), size)]


def _too_long(prompt: int, overhead: int, width: int, room: int) -> InvalidRequest | StateTooLong:
    left = room - overhead - width
    if left <= 0:
        return InvalidRequest(
            f"take {overhead} tokens of prompt; the engine's context of {room} leaves no room.",
            path=("questions",),
        )
    return StateTooLong(
        f"has {prompt - overhead} tokens; {left} fit beside these questions.",
        path=("state",),
        hint=f"Shorten the state, or start the engine with a --max-model-len above {room}.",
    )
