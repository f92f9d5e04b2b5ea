"""Is transformers in process of the same opinion as the server?"""

from __future__ import annotations

import random

import pytest

from tests.engine.reads import Post, draw, read, rows, seeded
from tests.engine.server import SLIDING_WINDOW, Oracle


@pytest.mark.parametrize("width", [16, 32, 48, 64])
@pytest.mark.parametrize(
    "length",
    [5, 100, SLIDING_WINDOW - 1, SLIDING_WINDOW, SLIDING_WINDOW + 1, 300],
    ids=lambda length: f"prompt {length}",
)
def test_the_oracle_agrees_on_both_sides_of_the_sliding_window(
    post: Post, oracle: Oracle, vocabulary: int, length: int, width: int
) -> None:
    prompt, canvas = draw(length, seed=length), draw(width, seed=width)
    ids = random.Random(length * width).sample(range(vocabulary), 100)
    served = rows(post(read(prompt=prompt, logprob_token_ids=ids, xargs=seeded(canvas))))
    own = oracle.read(prompt, canvas, range(width), ids)
    assert width == len(served)
    for expected, row in zip(own, served, strict=True):
        assert [row[i] for i in ids] == pytest.approx(expected, abs=1e-4)
    best = [max(row, key=lambda i: row[i]) for row in served]
    assert oracle.argmax(prompt, canvas, range(width)) == best
