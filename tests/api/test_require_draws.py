"""`require_draws` in every format: 503 where draws that were wanted could not be made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from structured_server.core.reads import Read, ReadRequest
from structured_server.errors import UpstreamFailed
from tests.api.asking import CHAT, DECISIONS, PREDICATE, SYSTEM_ONE, TOKENIZER, URGENT, decisions, system_one
from tests.api.conftest import Start
from tests.fake_backend import FakeBackend

QUESTIONS = {"urgent": URGENT}
SAID = "draws that were wanted could not be made: more reads failed: it broke."
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "decide": ("/decide", {"state": "x", "questions": QUESTIONS, "read": {"require_draws": True}}),
    "systemone": (SYSTEM_ONE, system_one(QUESTIONS, require_draws=True)),
    "decisions": (DECISIONS, decisions(PREDICATE, require_draws=True)),
    "chat": (
        CHAT,
        {
            "model": "dgemma",
            "messages": [
                {"role": "system", "content": {"questions": [URGENT | {"id": "a"}], "require_draws": True}},
                {"role": "user", "content": "x"},
            ],
        },
    ),
}


def body_of(name: str, *, require: bool = True) -> dict[str, Any]:
    """Return a format's request, which says that draws are required, or that they are not."""
    text = json.dumps(FORMATS[name][1])
    body: dict[str, Any] = json.loads(text if require else text.replace("true}", "false}"))
    if name == "chat":
        system = body["messages"][0]
        system["content"] = json.dumps(system["content"])
    return body


class FirstOnly(FakeBackend):
    """Answers single reads, of two minds, and fails on several at once."""

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Answer, or fail."""
        if len(batch) > 1:
            raise UpstreamFailed("it broke.")
        return await super().read(batch)


def backend() -> FirstOnly:
    return FirstOnly(logprob=lambda *_: -3.0, chat=True)


@pytest.mark.parametrize("name", FORMATS)
async def test_a_degraded_answer_is_a_503_in_each_formats_shape(start: Start, name: str) -> None:
    async with start(backend(), TOKENIZER) as client:
        reply = await client.post(FORMATS[name][0], json=body_of(name))
        metrics = (await client.get("/metrics")).text
    assert (503, "1") == (reply.status_code, reply.headers["retry-after"])
    if name == "systemone":
        assert "overloaded_error" == reply.json()["detail"]["error_type"]
        assert reply.json()["detail"]["message"].startswith(SAID)
    else:
        assert "draws_missing" == reply.json()["error"]["code"]
        assert reply.json()["error"]["message"].startswith(SAID)
    assert 'refused_total{reason="draws_missing"} 1.0' in metrics


@pytest.mark.parametrize("name", FORMATS)
async def test_without_it_the_answer_says_what_is_missing(start: Start, name: str) -> None:
    async with start(backend(), TOKENIZER) as client:
        reply = await client.post(FORMATS[name][0], json=body_of(name, require=False))
    assert 200 == reply.status_code
    assert "more reads failed" in reply.text


async def test_an_item_of_a_batch_fails_by_itself(start: Start) -> None:
    _, body = FORMATS["decide"]
    batch = {name: value for name, value in body.items() if name != "state"} | {"items": [{"state": "x"}]}
    async with start(backend(), TOKENIZER) as client:
        reply = await client.post("/decide/batch", json=batch)
    _, item, end = map(json.loads, reply.text.splitlines())
    assert ("draws_missing", True) == (item["error"]["code"], item["error"]["retryable"])
    assert (0, 1) == (end["ok"], end["failed"])


@pytest.mark.parametrize("value", ["yes", 1, None])
async def test_only_true_and_false_are_taken(start: Start, value: Any) -> None:
    async with start(backend(), TOKENIZER) as client:
        reply = await client.post("/decide", json={**FORMATS["decide"][1], "read": {"require_draws": value}})
        assert 422 == reply.status_code
        assert ["read", "require_draws"] == reply.json()["error"]["path"]
        assert 422 == (await client.post(SYSTEM_ONE, json=system_one(require_draws=value))).status_code
