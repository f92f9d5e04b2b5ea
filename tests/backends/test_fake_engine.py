"""The fake engine itself: it keeps vLLM's read contract, and its faults can be switched from outside."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import orjson
import pytest

from structured_server.backends.vllm.client import Client
from structured_server.backends.vllm.messages import CHAT_COMPLETIONS, COMPLETIONS, error_message
from tests.fake_engine import FakeEngine, expected_logprob
from tests.toy_engine import ToyEngineTokenizer

SEED = [5] * 16
READ: dict[str, Any] = {
    "model": "fake",
    "prompt": [2, 3],
    "max_tokens": 4,
    "logprobs": 1,
    "logprob_token_ids": [16, 18],
    "vllm_xargs": {"diffusion_seed_canvas": SEED, "diffusion_canvas_length": 16},
}


def seeded(**extras: Any) -> dict[str, Any]:
    return {"vllm_xargs": READ["vllm_xargs"] | extras}


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (seeded(diffusion_seed_canvas=[5]), 400, "diffusion_seed_canvas must hold exactly 16 ids, got 1."),
        (seeded(diffusion_canvas_length=80), 400, "no larger than the served canvas"),
        (seeded(diffusion_canvas_length=0), 400, "no larger than the served canvas"),
        (seeded(diffusion_seed_canvas=[10**8] * 16), 400, "outside the vocabulary"),
        ({"logprob_token_ids": [2**31 - 1]}, 400, "Vocabulary size: 1124112"),
        ({"logprob_token_ids": list(range(129))}, 400, "more than 128"),
        ({"logprobs": None}, 400, "needs logprobs"),
        ({"prompt": [5] * 4096}, 400, "maximum context length is 4096"),
        ({"model": "other"}, 404, "`other` does not exist"),
    ],
)
async def test_what_vllm_refuses_is_refused(
    client: Client, change: dict[str, Any], status: int, message: str
) -> None:
    reply = await client.post(COMPLETIONS, orjson.dumps(READ | change))
    assert status == reply.status
    assert message in error_message(reply.body)


async def test_rows_hold_the_ids_asked_for_and_the_best_one(client: Client) -> None:
    reply = await client.post(COMPLETIONS, orjson.dumps(READ))
    logprobs = orjson.loads(reply.body)["choices"][0]["logprobs"]
    assert 4 == len(logprobs["top_logprobs"])
    for position, (best, row) in enumerate(zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)):
        assert {f"token_id:{i}": expected_logprob([2, 3], SEED, i, position) for i in (16, 18, 5)} == row
        assert max(row, key=row.__getitem__) == best


async def test_a_prompt_that_fits_only_without_its_canvas_gets_fewer_rows(client: Client) -> None:
    reply = await client.post(COMPLETIONS, orjson.dumps(READ | {"prompt": [5] * 4094}))
    assert 2 == len(orjson.loads(reply.body)["choices"][0]["logprobs"]["tokens"])


async def test_chat_messages_are_tokenised_with_control_tokens_as_vllm_does(
    engine: FakeEngine, client: Client
) -> None:
    messages = [{"role": role, "content": text} for role, text in (("system", "be\ue001"), ("user", "hi"))]
    body = {name: value for name, value in READ.items() if name != "prompt"} | {"messages": messages}
    assert 200 == (await client.post(CHAT_COMPLETIONS, orjson.dumps(body))).status
    chat = ToyEngineTokenizer().chat
    text = f"{chat.start}be\ue001{chat.middle}hi{chat.end}"
    assert tuple(ToyEngineTokenizer().encode_like_engine(text)) == engine.reads[0].prompt


def test_it_runs_as_a_process_whose_faults_are_set_over_http() -> None:
    command = [sys.executable, "-m", "tests.fake_engine", "--model", "other", "--canvas", "32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            served = httpx.get(f"{url}/v1/models").json()["data"][0]
            assert {"id": "other", "max_model_len": 4096} == served
            assert 200 == httpx.get(f"{url}/health").status_code
            httpx.put(f"{url}/faults", json={"dead": True}).raise_for_status()
            assert 503 == httpx.get(f"{url}/health").status_code
        finally:
            process.kill()
