"""Requests in the formats of other servers, and backends that believe what they are told."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from structured_server.core.reads import ReadRequest
from structured_server.wire.decisions_answer import DecisionsResponse
from structured_server.wire.systemone_answer import SystemOneResponse
from tests.api.conftest import WORDS
from tests.fake_backend import FakeBackend
from tests.toy import ToyTokenizer

SYSTEM_ONE = "/v1/systemone"
DECISIONS = "/v1/decisions"
CHAT = "/v1/chat/completions"
TOKENIZER = ToyTokenizer(WORDS, scaffold=True)

URGENT = {"type": "noul", "instructions": "Wake somebody?", "criteria": {"true": "customers notice"}}
TEAM = {"type": "choice", "instructions": "Whose is it?", "criteria": {"networking": "WAF", "billing": None}}
SEVERITY = {"type": "score", "instructions": "How bad?", "criteria": ["none", "low", "high"]}
QUESTIONS: dict[str, Any] = {"urgent": URGENT, "team": TEAM, "severity": SEVERITY}
PREDICATE = {"type": "predicate", "instructions": "Somebody must wake."}


def system_one(questions: Mapping[str, Any] = QUESTIONS, **fields: Any) -> dict[str, Any]:
    """Return a System One request."""
    return {"model": "jev-latest", "state": "502 spike", "questions": dict(questions), **fields}


def decisions(*questions: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a Decisions request."""
    return {"model": "dgemma", "input": "502 spike", "questions": list(questions or (PREDICATE,)), **fields}


async def answered(client: httpx.AsyncClient, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send a System One request, and hold its answer against the documented type."""
    reply = await client.post(SYSTEM_ONE, json=body)
    assert 200 == reply.status_code, reply.text
    SystemOneResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


async def decided(client: httpx.AsyncClient, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send a Decisions request, and hold its answer against the documented type."""
    reply = await client.post(DECISIONS, json=body)
    assert 200 == reply.status_code, reply.text
    DecisionsResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


def believing(*words: str) -> Callable[[ReadRequest, int, int], float]:
    """Return what a model says that is sure of these labels."""
    ids = {spelling for word in words for spelling in TOKENIZER.variants(TOKENIZER.encode(word)[0])}

    def logprob(_request: ReadRequest, token_id: int, _position: int) -> float:
        return -0.01 if token_id in ids else -14.0

    return logprob


def prompts(backend: FakeBackend) -> list[str]:
    """Return what was read, as text, each prompt once and in their order."""
    requests = (request for batch in backend.batches for request in batch)
    return list(dict.fromkeys(TOKENIZER.text(request.prompt.ids) for request in requests))


def draws_of(answer: Mapping[str, Any]) -> dict[str, int]:
    """Return how many draws each question has."""
    return {name: each["x_reading"]["noise"]["draws"] for name, each in answer["answers"].items() if each}


_SAID: Sequence[Any] = (
    "Is it?",
    {"question": "Is it?", "of": [1, None]},
    ["Is", "it?"],
    "Ist es schlüssig? 🚀",
)


def random_questions(random_: random.Random) -> dict[str, Any]:
    """Return questions of every form that the format has."""
    described = (None, "customers notice", {"a": 1}, ["b", 2.5], "")

    def one() -> dict[str, Any]:
        said = random_.choice(_SAID)
        kind = random_.choice(["noul", "choice", "score"])
        if kind == "noul":
            criteria: Any = random_.choice(
                [None, {}, {"true": "now"}, {"false": ["later"]}, {"true": {"x": 1}, "false": None}]
            )
            return {"type": kind, "instructions": said, "criteria": criteria}
        count = random_.randint(2, 10)
        if kind == "choice":
            names = random_.sample(["networking", "billing", " spaced ", "ÄÖ", *map(str, range(20))], count)
            return {
                "type": kind,
                "instructions": random_.choice([said, None]),
                "criteria": {name: random_.choice(described) for name in names},
            }
        levels: list[Any] = random_.sample([*map(str, range(20)), {"level": 1}, ["x"], "low", "high"], count)
        return {"type": kind, "instructions": said, "criteria": levels}

    names = random_.sample(["urgent", "x y", "Ünï", "a.b", '"q"', "0", "none", " ", "\n", "x" * 300], 6)
    return {name: one() for name in names[: random_.randint(1, 6)]}
