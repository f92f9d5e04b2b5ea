"""What a decision must be, read by transformers in process instead of by the server and vLLM."""

from __future__ import annotations

import json
from typing import Any

from structured_server.core.decision import GroupJob
from structured_server.core.distribution import distribution, pool
from structured_server.core.plan import Capabilities, ReadOptions, compile_plan
from structured_server.core.prompt import build_prompt
from structured_server.core.reads import Prompt, derive_seed
from structured_server.core.tokens import Tokenizer
from structured_server.wire.decide_request import DecideRequest
from tests.engine.server import Oracle

WIDTHS = Capabilities((16, 32, 48, 64), 128, 4096)


def expected_probabilities(
    request: dict[str, Any], draws: int, tokenizer: Tokenizer, oracle: Oracle
) -> dict[str, list[float]]:
    """Return each question's probabilities, pooled over the draws, from the oracle's log-probabilities."""
    asked = DecideRequest.model_validate_json(json.dumps(request))
    options, state = asked.read_options(ReadOptions()), asked.state_text()
    found: dict[str, list[float]] = {}
    for group in compile_plan(asked.schema_of_questions(), options, WIDTHS, tokenizer).groups:
        segments = build_prompt(tokenizer.chat, options.layout, options.template, group.asked, state)
        ids = tokenizer.encode_prompt(segments) + tokenizer.scaffold
        seed = derive_seed(asked.read.seed, state, group.content)
        job = GroupJob(group, Prompt(ids), seed, tokenizer.noise_ids)
        readings = []
        for draw in range(draws):
            read = job.request(draw)
            rows = oracle.read(ids, read.canvas, read.positions, read.label_ids)
            readings.append(
                [
                    distribution([[row[read.label_ids.index(i)] for i in option] for option in slot.options])
                    for slot, row in zip(group.canvas.slots, rows, strict=True)
                ]
            )
        for index, name in enumerate(group.identifiers):
            found[name] = list(pool([reading[index] for reading in readings]).probabilities)
    return found
