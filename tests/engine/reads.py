"""Bodies of reads and their rows, as the contract tests write and read them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import httpx

from tests.engine.server import CANVAS

FIRST_PLAIN = 494  # ids below are control tokens, whitespace, tags and bytes
WIDTH = 16
PROMPT = list(range(600, 640))
SEED = list(range(900, 900 + WIDTH))
IDS = [700, 701, 702]

Row = dict[int, float]
Post = Callable[[dict[str, Any]], httpx.Response]


def read(without: tuple[str, ...] = (), xargs: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Build the body of a plain read with some fields changed, or left out by name."""
    arguments = {
        "diffusion_seed_canvas": SEED,
        "diffusion_canvas_length": WIDTH,
        "diffusion_max_steps": 1,
        "diffusion_read_only": True,
    }
    body = {
        "model": "dgemma",
        "prompt": PROMPT,
        "max_tokens": CANVAS,
        "logprobs": 1,
        "logprob_token_ids": IDS,
        "return_tokens_as_token_ids": True,
        "vllm_xargs": {k: v for k, v in (arguments | (xargs or {})).items() if k not in without},
    }
    return {k: v for k, v in (body | fields).items() if k not in without}


def seeded(seed: list[Any], **more: Any) -> dict[str, Any]:
    """Give the arguments of a read with another seed, as wide as that seed."""
    return {"diffusion_seed_canvas": seed, "diffusion_canvas_length": len(seed)} | more


def draw(count: int, seed: int) -> list[int]:
    """Draw plain token ids."""
    return random.Random(seed).choices(range(FIRST_PLAIN, 4000), k=count)


def rows(reply: httpx.Response, choice: int = 0) -> list[Row]:
    """Read the rows of a reply: log-probabilities by id."""
    assert reply.status_code == 200, reply.text
    top = reply.json()["choices"][choice]["logprobs"]["top_logprobs"]
    return [{int(key.removeprefix("token_id:")): value for key, value in row.items()} for row in top]


def refusal(reply: httpx.Response) -> str:
    """Read the message of a reply that must be a 400."""
    assert reply.status_code == 400, (reply.status_code, reply.text)
    message: str = reply.json()["error"]["message"]
    return message
