"""What a decision must be, read by transformers in process instead of by the server and vLLM."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from structured_server.core.answers import Answer, Answers, Skipped
from structured_server.core.plan import Capabilities, Compiler, ReadOptions
from structured_server.core.policy import ReadPolicy
from structured_server.core.reading import Batch, GroupJob, GroupReading, Reply, read_group
from structured_server.core.reads import Prompt, Read, ReadRequest, Row
from structured_server.core.stage import answers_of, open_stage
from structured_server.core.tokens import Tokenizer
from structured_server.driver import Query
from structured_server.jobs import Frame, JobMaker, Matter
from structured_server.wire.decide_request import DecideRequest
from tests.engine.server import Oracle

CAPABILITIES = Capabilities((16, 32, 48, 64), 128, 4096)

IdsOf = Callable[[Prompt], Sequence[int]]
"""From a prompt to the ids that the engine reads, those of its images among them."""


def expected_probabilities(
    request: dict[str, Any],
    draws: int,
    tokenizer: Tokenizer,
    oracle: Oracle,
    ids_of: IdsOf = attrgetter("ids"),
) -> dict[str, list[float]]:
    """Return each question's probabilities, pooled over the draws, from the oracle's log-probabilities."""
    return {
        name: list(answer.distribution.probabilities)
        for name, answer in expected_answers(request, draws, tokenizer, oracle, ids_of).items()
        if isinstance(answer, Answer)
    }


def expected_answers(
    request: dict[str, Any],
    draws: int,
    tokenizer: Tokenizer,
    oracle: Oracle,
    ids_of: IdsOf = attrgetter("ids"),
) -> Answers:
    """Return each question's answer."""
    return answers_to(query_of(request, draws), tokenizer, oracle, ids_of)


def query_of(request: dict[str, Any], draws: int) -> Query:
    """Return what a request of `POST /decide` asks for, with a number of draws."""
    asked = DecideRequest.model_validate_json(json.dumps(request))
    return Query(
        schema=asked.schema_of_questions(),
        state=asked.state_text(),
        options=asked.read_options(ReadOptions()),
        policy=replace(asked.read_policy(ReadPolicy()), samples=draws),
        seed=asked.seed,
        deadline_s=math.inf,
        images=asked.pictures(()),
    )


def answers_to(
    query: Query, tokenizer: Tokenizer, oracle: Oracle, ids_of: IdsOf = attrgetter("ids")
) -> Answers:
    """Return each question's answer. The oracle has no cap: all label ids are read at once."""
    options, policy = query.options, query.policy
    if query.images:
        options = replace(options, scaffold="canvas", restate=True)
    compiler = Compiler(options, CAPABILITIES, tokenizer)
    plan = compiler.plan(query.schema)
    maker = JobMaker(
        Frame.around(plan, CAPABILITIES, tokenizer), Matter(query.state, query.images, query.seed)
    )
    answers: dict[str, Answer | Skipped] = {}
    for stage in plan.stages:
        opened, skipped = open_stage(stage, answers, compiler)
        answers.update(skipped)
        for each in opened:
            job = maker.job(each, policy)
            answers.update(
                answers_of(_read(replace(job, chunks=(job.group.canvas.label_ids,)), policy, oracle, ids_of))
            )
    return answers


def _read(job: GroupJob, policy: ReadPolicy, oracle: Oracle, ids_of: IdsOf) -> GroupReading:
    asking = read_group(job, policy)
    batch: Batch = next(asking)
    while True:
        reply: Reply = [_ask(request, oracle, ids_of) for request in batch.requests]
        try:
            batch = asking.send(reply)
        except StopIteration as end:
            reading: GroupReading = end.value
            return reading


def _ask(request: ReadRequest, oracle: Oracle, ids_of: IdsOf) -> Read:
    ids = ids_of(request.prompt)
    images = [image.data for image in request.prompt.images]
    rows = oracle.read(ids, request.canvas, request.positions, request.label_ids, images)
    return Read(
        tuple(Row(dict(zip(request.label_ids, row, strict=True)), None) for row in rows),
        len(ids),
    )
