"""The driver: runs decisions against a backend, stage by stage, under a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from structured_server import tracing
from structured_server.admission import DEFAULT_LANE, Admission, Lane, Rank
from structured_server.backends import Backend, Relayed
from structured_server.core.answers import Answer, DecisionWarning, Skipped
from structured_server.core.decision import Decision, conclude
from structured_server.core.plan import Capabilities, Compiler, ReadOptions
from structured_server.core.policy import Calibration, FittedPolicy, ReadPolicy
from structured_server.core.provenance import fingerprint, question_set_id
from structured_server.core.questions import Schema
from structured_server.core.reading import GroupJob, GroupReading
from structured_server.core.reads import Image, Thought
from structured_server.core.stage import OpenGroup, answers_of, open_stage
from structured_server.core.state import LongState
from structured_server.core.tokens import Tokenizer
from structured_server.course import Course
from structured_server.errors import DeadlineExceeded, DrawsMissing, InvalidRequest
from structured_server.jobs import Frame, JobMaker, Matter, extensions_allowed, refuse_unsupported
from structured_server.metrics import Metrics
from structured_server.parallel import in_a_thread, together
from structured_server.performer import Performer
from structured_server.sharing import Sharing

PLANS_KEPT = 512
LONG_STATE = 8_192  # characters from which tokenising moves off the event loop
MANY_OPTIONS = 64  # options, over all questions, from which compiling does

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """What is to be decided, whichever wire format it came in. Equal queries share their reads."""

    schema: Schema
    state: str
    options: ReadOptions
    policy: ReadPolicy
    seed: int
    deadline_s: float
    images: tuple[Image, ...] = ()
    long_state: LongState = "reject"
    require_draws: bool = False  # fail where draws that were wanted could not be made
    cache_salt: str = ""  # apart from other salts: the engine's cached prefixes, and reads that are shared

    def __hash__(self) -> int:
        # Queries about one state are mostly equal, and a text keeps its own hash.
        return hash((self.state, self.seed))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision with what the driver knows beside it. Times are in milliseconds."""

    decision: Decision
    state_tokens: int
    state_tokens_used: int
    question_set: str
    fingerprint: str
    queue_ms: float
    engine_ms: float
    total_ms: float
    shared: bool = False  # with an equal query that was in flight


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A plan, measured, with the names of what it answers. Equal to nothing but itself."""

    frame: Frame
    compiler: Compiler
    question_set: str


def no_caveats(_: Schema) -> Sequence[DecisionWarning]:
    """Return nothing: most models need no warning whatever they are asked."""
    return ()


class Driver:
    """Decides queries with one backend. Each decision warns of what `caveats` finds in its questions.

    A `fitted` policy is applied to the decisions that it was fitted for; all others warn that it was not.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        admission: Admission,
        metrics: Metrics,
        *,
        surroundings: Sequence[str] = (),
        caveats: Callable[[Schema], Sequence[DecisionWarning]] = no_caveats,
        fitted: FittedPolicy | None = None,
    ) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._performer = Performer(backend, admission, metrics)
        self._metrics = metrics
        self._surroundings = (backend.name, tokenizer.fingerprint, *surroundings)
        self._caveats = caveats
        self._fitted = fitted
        self._compile = lru_cache(maxsize=PLANS_KEPT)(self._compile_anew)
        self._fingerprint_kept = lru_cache(maxsize=PLANS_KEPT)(self._fingerprint_anew)
        self._sharing = Sharing[Outcome]()
        self.asked = 0  # what callers have asked for so far

    def use_policy(self, fitted: FittedPolicy | None) -> None:
        """Apply another fitted policy from now on. Plans stay as they are: none of it is in them."""
        self._fitted = fitted

    async def decide(self, query: Query, lane: Lane = DEFAULT_LANE) -> Outcome:
        """Read what the query asks, stage by stage, and conclude. Equal queries in flight share their reads.

        Raises:
            CallerError: the questions or the state cannot be read as asked.
            Overloaded: there is no room in the queue.
            DeadlineExceeded: the first reads did not come back in time.
            UpstreamError: a first read failed.
        """
        begun = time.monotonic()
        self.asked += not lane.idle
        deadline = asyncio.get_running_loop().time() + query.deadline_s
        # What somebody waits for does not wait with a batch; a batch's items may go ahead with it.
        first = (query, Rank.FIRST)
        about = first if self._sharing.has(first) else (query, lane.rank(extra=False))
        joins = self._sharing.has(about)
        try:
            outcome, shared = await self._sharing.do(about, lambda: self._decide(query, deadline, lane))
        except DeadlineExceeded:
            if not joins or asyncio.get_running_loop().time() >= deadline:
                raise
            # It was the deadline of the one who had begun earlier.
            outcome, shared = await self._decide(query, deadline, lane), False
        took = time.monotonic() - begun
        if took > query.deadline_s:  # a busy loop hands outcomes over late, and its own clock stands still
            raise _late(query)
        if not lane.idle:
            self._metrics.observe(outcome.decision, shared=shared)
        return replace(outcome, shared=shared, total_ms=1000 * took)

    def chat(self, body: bytes, lane: Lane = DEFAULT_LANE) -> AbstractAsyncContextManager[Relayed]:
        """Have the engine itself answer a chat request, as far as it takes any. Its reply is held open.

        Raises:
            InvalidRequest: the backend reads only.
        """
        if not self._backend.capabilities.chat:
            raise InvalidRequest(
                "the messages ask for text to be written, and this backend only reads.",
                hint="Put typed questions into the system message, or serve with a vLLM server.",
            )
        self.asked += 1
        return self._performer.chat(body, lane)

    async def compiled(self, query: Query) -> Compiled:
        """Return a query's plan, from the cache or made now.

        Raises:
            CallerError: the questions cannot be read as asked.
        """
        capabilities = self._backend.capabilities
        refuse_unsupported(query.options, query.images, capabilities, self._tokenizer)
        options = query.options
        if query.images or not capabilities.continues:
            # The engine makes such prompts itself: nothing of ours can stand behind the model's marker, and
            # what its chat template puts there cannot be taken away.
            in_prompt = self._tokenizer.scaffold_in_prompt
            options = replace(options, scaffold="prompt" if in_prompt else "canvas", restate=True)
        options_in_all = sum(len(question.options) for _, question in query.schema.questions)
        return await _off_the_loop(
            options_in_all > MANY_OPTIONS or options.sequential,
            lambda: self._compile(query.schema, options, capabilities),
        )

    def fingerprint_of(self, compiled: Compiled, policy: ReadPolicy) -> str:
        """Return the fingerprint that such a decision has as long as no fitted policy is applied to it."""
        return self._fingerprint_kept(compiled, policy, None)

    def fingerprint_carried(self, compiled: Compiled, policy: ReadPolicy) -> str:
        """Return the fingerprint that such a decision's answer carries."""
        return self._fingerprint(compiled, policy, self._calibrated(compiled, policy)[1])

    async def _decide(self, query: Query, deadline: float, lane: Lane) -> Outcome:
        course = self._performer.course(deadline, query.deadline_s, lane)
        try:
            async with asyncio.timeout_at(course.deadline):
                outcome = await self._decide_in_time(query, course)
        except TimeoutError:
            raise _late(query) from None
        if asyncio.get_running_loop().time() > course.deadline:  # concluding took that long
            raise _late(query)
        return outcome

    async def _decide_in_time(self, query: Query, course: Course) -> Outcome:
        compiled = await self.compiled(query)
        policy, calibration = self._calibrated(compiled, query.policy)
        frame = compiled.frame
        may_extend = extensions_allowed(frame, policy)
        self._performer.expect(frame, policy, course)  # before anything is spent on it
        whole = Matter(query.state, query.images, query.seed, query.cache_salt)
        long = len(query.state) * len(frame.plan.groups) > LONG_STATE
        with tracing.span("tokenise"), self._metrics.tokenise_seconds.time():
            fitting, before = await _off_the_loop(
                long, lambda: _cut(JobMaker(frame, whole), query.long_state)
            )
        answers: dict[str, Answer | Skipped] = {}
        readings: list[GroupReading] = []
        for stage in frame.plan.stages:
            opened, skipped = open_stage(stage, answers, compiled.compiler)
            answers.update(skipped)
            course.leg()
            thoughts = await together([self._think(fitting, each, course) for each in opened])

            def jobs(
                opened: Sequence[OpenGroup] = opened, thoughts: Sequence[Thought | None] = thoughts
            ) -> list[GroupJob]:
                return [
                    fitting.job(each, policy, may_extend=may_extend[each.group.identifiers], thought=thought)
                    for each, thought in zip(opened, thoughts, strict=True)
                ]

            with tracing.span("tokenise"), self._metrics.tokenise_seconds.time():
                made = await _off_the_loop(long, jobs)
            course.leg()
            found = await together([self._performer.read(job, policy, course) for job in made])
            readings += found
            for reading in found:
                answers.update(answers_of(reading))
        if query.require_draws:
            _require_draws(readings)
        with tracing.span("fold"), self._metrics.fold_seconds.time():
            used = fitting.state_tokens()
            caveats = (*self._caveats(query.schema), *_about_cut(before, used))
            decision = conclude(
                frame.plan, readings, answers, self._tokenizer.token_text, caveats, calibration=calibration
            )
        return Outcome(
            decision=decision,
            state_tokens=before,
            state_tokens_used=used,
            question_set=compiled.question_set,
            fingerprint=self._fingerprint(compiled, query.policy, calibration),
            queue_ms=1000 * course.queue,
            engine_ms=1000 * course.engine_s,
            total_ms=0.0,
        )

    def _compile_anew(self, schema: Schema, options: ReadOptions, capabilities: Capabilities) -> Compiled:
        compiler = Compiler(options, capabilities, self._tokenizer)
        frame = Frame.around(compiler.plan(schema), capabilities, self._tokenizer)
        return Compiled(frame, compiler, question_set_id(schema))

    def _calibrated(self, compiled: Compiled, policy: ReadPolicy) -> tuple[ReadPolicy, Calibration | None]:
        """Return the policy with what was fitted for just this decision in place of the defaults."""
        fitted = self._fitted
        if fitted is None:
            return policy, None
        if self.fingerprint_of(compiled, policy) != fitted.fingerprint:
            return policy, Calibration(fitted, fingerprint_match=False)
        return replace(
            policy,
            temperatures=fitted.temperatures or policy.temperatures,
            entropy_thresholds=fitted.thresholds or policy.entropy_thresholds,
        ), Calibration(fitted, fingerprint_match=True)

    def _fingerprint(self, compiled: Compiled, policy: ReadPolicy, calibration: Calibration | None) -> str:
        applied = calibration.policy if calibration and calibration.fingerprint_match else None
        return self._fingerprint_kept(compiled, policy, applied)

    def _fingerprint_anew(self, compiled: Compiled, policy: ReadPolicy, applied: FittedPolicy | None) -> str:
        return fingerprint(compiled.frame.plan, policy, self._surroundings, applied)

    async def _think(self, maker: JobMaker, opened: OpenGroup, course: Course) -> Thought | None:
        """Have the model write its thought about a group, if it is to."""
        tokens = maker.thought_tokens
        if not tokens:
            return None
        begun = time.monotonic()
        stop = self._tokenizer.scaffold[-1]
        prompt = maker.thinking(opened)
        written = await self._performer.generate(prompt, tokens, stop, course)
        return Thought(
            written.ids, self._tokenizer.text(written.ids), written.stopped, time.monotonic() - begun
        )


def _late(query: Query) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"no answer within the deadline of {query.deadline_s * 1000:.0f} ms.",
        hint="Raise deadline_ms, or send fewer requests at a time.",
    )


def _require_draws(readings: Sequence[GroupReading]) -> None:
    for reading in readings:
        # Draws that the limit of reads forbids would not come at another time either.
        if reading.skipped is not None and reading.job.may_extend:
            raise DrawsMissing(
                f"draws that were wanted could not be made: {reading.skipped.reason}.",
                hint="Send the request again after a moment, or leave read.require_draws out.",
            )


def _cut(maker: JobMaker, long_state: LongState) -> tuple[JobMaker, int]:
    """Return a maker for what fits, and how many tokens there were: a million are not kept for longer."""
    return maker.cut(long_state), maker.state_tokens()


async def _off_the_loop(long: bool, work: Callable[[], T]) -> T:
    """Do the work, in a thread where it takes long enough for others to notice."""
    return await in_a_thread(work) if long else work()


def _about_cut(before: int, used: int) -> Sequence[DecisionWarning]:
    if used == before:
        return ()
    return (
        DecisionWarning("state_truncated", f"The model was shown {used} of the state's {before} tokens."),
    )
