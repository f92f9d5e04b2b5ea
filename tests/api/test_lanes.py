"""Who waits behind whom: batches behind requests, keys side by side, and nobody for too long."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.api.asking import SYSTEM_ONE, TOKENIZER, URGENT, believing, system_one
from tests.api.conftest import Start
from tests.fake_backend import FakeBackend

QUESTIONS = {"urgent": URGENT}


def asked(state: str, **fields: Any) -> dict[str, Any]:
    """Return a request of one read."""
    return {"state": state, "questions": QUESTIONS, "read": {"samples": 1}, **fields}


def backend() -> FakeBackend:
    """A backend that takes its time."""
    return FakeBackend(logprob=believing("yes"), delay_s=0.05)


def states(backend: FakeBackend) -> list[str]:
    """Return the states in the order in which they were read."""
    texts = [TOKENIZER.text(batch[0].prompt.ids) for batch in backend.batches]
    return [next(line for line in text.split("@") if line.startswith("#")) for text in texts]


async def test_a_request_goes_before_the_items_of_a_batch_that_wait(start: Start) -> None:
    engine = backend()
    items = [{"state": f"@#{number}@"} for number in range(8)]
    async with start(engine, TOKENIZER, max_reads=1) as client:
        batch = asyncio.create_task(
            client.post(
                "/decide/batch", json={"questions": QUESTIONS, "read": {"samples": 1}, "items": items}
            )
        )
        await asyncio.sleep(0.08)
        await client.post("/decide", json=asked("@#now@"))
        assert not batch.done()
        assert '"ok":8' in (await batch).text
    assert states(engine).index("#now") < 5


async def test_a_key_with_one_request_does_not_wait_behind_another_keys_many(start: Start) -> None:
    engine = backend()
    async with start(engine, TOKENIZER, max_reads=1, api_key=("first", "second")) as client:

        async def ask(key: str, state: str) -> httpx.Response:
            return await client.post("/decide", json=asked(state), headers={"Authorization": f"Bearer {key}"})

        many = [asyncio.create_task(ask("first", f"@#{number}@")) for number in range(10)]
        await asyncio.sleep(0.08)
        assert 200 == (await ask("second", "@#other@")).status_code
        assert {200} == {reply.status_code for reply in await asyncio.gather(*many)}
    assert states(engine).index("#other") < 5


async def test_who_would_wait_too_long_is_refused_at_once_and_counted(start: Start) -> None:
    engine = backend()
    engine.delay_s = 0.2
    async with start(engine, TOKENIZER, max_reads=1, max_wait_ms=300) as client:
        assert 200 == (await client.post("/decide", json=asked("@#0@"))).status_code
        going = [asyncio.create_task(client.post("/decide", json=asked(f"@#{number}@"))) for number in (1, 2)]
        await asyncio.sleep(0.05)
        reply = await client.post("/decide", json=asked("@#3@"))
        other = await client.post(SYSTEM_ONE, json=system_one(QUESTIONS, samples=4))
        metrics = (await client.get("/metrics")).text
        assert [200, 200] == [each.status_code for each in await asyncio.gather(*going)]
    assert (503, "overloaded", "1") == (
        reply.status_code,
        reply.json()["error"]["code"],
        reply.headers["retry-after"],
    )
    assert "canvas positions would wait for about 0." in reply.json()["error"]["message"]
    assert (529, "overloaded_error") == (other.status_code, other.json()["detail"]["error_type"])
    assert 'refused_total{reason="overloaded"} 2.0' in metrics
    assert 'shed_total{reason="long_wait"} 2.0' in metrics
