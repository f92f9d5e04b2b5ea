"""Reads to send, and how to wait for what the fake engine sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from structured_server.backends import Step
from structured_server.backends.vllm import VllmBackend
from structured_server.core.reads import Image, Prompt, Read, ReadRequest, Row
from structured_server.core.tokens import Kind, Segment
from tests.fake_replies import expected_logprob
from tests.toy_engine import ToyEngineTokenizer

YES, NO = 16, 18


def read_request(
    *,
    width: int = 16,
    positions: tuple[int, ...] = (3, 7),
    label_ids: tuple[int, ...] = (YES, NO),
    state: str = "a pump has failed",
    fill: int = 12_000,
    steps: int = 1,
    constrained: bool = False,
    images: tuple[Image, ...] = (),
) -> ReadRequest:
    """Return a read of two slots; its prompt is what the toy tokenizer makes of its segments."""
    tokenizer = ToyEngineTokenizer()
    chat = tokenizer.chat
    segments = (
        Segment(Kind.CONTROL, chat.start),
        Segment(Kind.TEXT, "Say yes or no."),
        Segment(Kind.CONTROL, chat.middle),
        Segment(Kind.STATE, state),
        Segment(Kind.CONTROL, chat.end),
    )
    prompt = Prompt(tokenizer.encode_prompt(segments), segments, images)
    return ReadRequest(prompt, (fill,) * width, positions, label_ids, steps, constrained)


def expected_rows(request: ReadRequest) -> list[dict[int, float]]:
    """Return the label ids' log-probabilities that a right answer to the read holds."""
    return [
        {i: expected_logprob(request.prompt.ids, request.canvas, i, position) for i in request.label_ids}
        for position in request.positions
    ]


def wanted_rows(request: ReadRequest, read: Read) -> list[dict[int, float]]:
    """Return what a read says of the request's label ids."""

    def wanted(row: Row) -> dict[int, float]:
        return {i: row.logprobs[i] for i in request.label_ids}

    return [wanted(row) for row in read.rows]


async def walk(backend: VllmBackend, steps: list[Step] | None = None) -> list[Step]:
    """Prepare a backend and return the steps; a list that is given has them even where one fails."""
    steps = [] if steps is None else steps
    async for step in backend.prepare():
        steps.append(step)
    return steps


async def until(condition: Callable[[], bool], limit_s: float = 3.0) -> None:
    """Wait until something becomes true.

    Raises:
        TimeoutError: it does not within the limit.
    """
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)
