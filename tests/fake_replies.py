"""What the fake engine says: log-probabilities that anybody can recompute, and reply bodies made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

# What may be wrong with a reply of status 200. The last four are values in place of every log-probability.
BodyFault = Literal[
    "truncated", "html", "fewer_rows", "missing_id", "wrong_ids", "nan", "inf", "positive", "floor"
]
_VALUES = {"nan": float("nan"), "inf": float("inf"), "positive": 0.5, "floor": -9999.0}

Rows = Sequence[tuple[str, dict[str, float]]]


def expected_logprob(prompt: Sequence[int], canvas: Sequence[int], token_id: int, position: int) -> float:
    """Return the log-probability, from -12 to -2, that the fakes give for a token at a canvas position."""
    return logprobs_of(prompt, canvas)(token_id, position)


def logprobs_of(prompt: Sequence[int], canvas: Sequence[int]) -> Callable[[int, int], float]:
    """Return `expected_logprob` of one prompt and canvas, which are hashed once for all of their tokens."""
    begun = blake2b(f"{list(prompt)} {list(canvas)} ".encode(), digest_size=8)

    def logprob(token_id: int, position: int) -> float:
        digest = begun.copy()
        digest.update(f"{token_id} {position}".encode())
        return -2.0 - 10.0 * (int.from_bytes(digest.digest(), "big") / 2**64)

    return logprob


def rows_of_reply(
    prompt: Sequence[int],
    canvas: Sequence[int],
    label_ids: Iterable[int],
    count: int,
    fault: BodyFault | None = None,
) -> Rows:
    """Return the first `count` rows: the best token's name, and each name with its log-probability.

    A row holds the ids that are asked for and the canvas's own, one of which is the best.
    """
    rows, logprob = [], logprobs_of(prompt, canvas)
    for position in range(count - (fault == "fewer_rows")):
        values = {i: logprob(i, position) for i in (*label_ids, canvas[position])}
        best = max(values, key=values.__getitem__)
        if fault == "missing_id":
            del values[max(label_ids)]
        shift = 100_000_000 if fault == "wrong_ids" else 0
        named = {_name(i + shift): _VALUES.get(fault or "", value) for i, value in values.items()}
        rows.append((_name(best), named))
    return rows


def completion_reply(rows: Rows, prompt_tokens: int) -> dict[str, Any]:
    """Return the body of a 200 of `/v1/completions`, with all that vLLM 0.32 says there."""
    logprobs = {
        "text_offset": list(range(0, 6 * len(rows), 6)),
        "token_logprobs": [row.get(best, 0.0) for best, row in rows],
        "tokens": [best for best, _ in rows],
        "top_logprobs": [row for _, row in rows],
    }
    choice = {"text": " token" * len(rows), "logprobs": logprobs, "prompt_logprobs": None}
    return _reply("text_completion", choice, len(rows), prompt_tokens)


def chat_reply(rows: Rows, prompt_tokens: int) -> dict[str, Any]:
    """Return the body of a 200 of `/v1/chat/completions`, with all that vLLM 0.32 says there."""
    content = [
        _named(best, row.get(best, 0.0))
        | {"top_logprobs": [_named(token, value) for token, value in row.items()]}
        for best, row in rows
    ]
    message = {"role": "assistant", "content": " token" * len(rows), "refusal": None, "reasoning": None}
    choice = {"message": message, "logprobs": {"content": content}}
    return _reply("chat.completion", choice, len(rows), prompt_tokens) | {"prompt_logprobs": None}


def generation_reply(ids: Sequence[int], prompt_tokens: int) -> dict[str, Any]:
    """Return the body of a 200 of `/v1/completions` that let the model write."""
    logprobs = {"tokens": list(map(_name, ids)), "top_logprobs": [{_name(i): -0.5} for i in ids]}
    return _reply("text_completion", {"logprobs": logprobs}, len(ids), prompt_tokens)


def _reply(kind: str, choice: Mapping[str, Any], count: int, prompt_tokens: int) -> dict[str, Any]:
    return {
        "id": "cmpl-acdd3219bf399afe",
        "object": kind,
        "created": 1796135663,
        "model": "fake",
        "choices": [
            {"index": 0, **choice, "finish_reason": "length", "stop_reason": None, "token_ids": None}
        ],
        "system_fingerprint": "fake",
        "usage": {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + count,
            "completion_tokens": count,
            "prompt_tokens_details": None,
        },
        "kv_transfer_params": None,
    }


def _named(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _name(token_id: int) -> str:
    return f"token_id:{token_id}"
