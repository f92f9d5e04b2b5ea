"""Prompts that are kept: the longest shared start is found, and the oldest go first."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structured_server.backends.embedded.prompts import Ids, KeptPrompts, KeysValues

EMPTY = np.zeros((1, 2, 1, 1, 0, 1), np.float32)


def ids(*values: int) -> Ids:
    """A prompt."""
    return np.array(values, np.int64)


def keys_values(prompt: Ids) -> KeysValues:
    """Keys and values that are the prompt's own ids, so that one sees where they came from."""
    return np.broadcast_to(prompt.astype(np.float32)[:, None], (1, 2, 1, 1, len(prompt), 1)).copy()


def start(kept: KeptPrompts, *values: int) -> list[int]:
    """Return the start that is kept of a prompt."""
    return [int(value) for value in kept.longest_start(ids(*values))[0, 0, 0, 0, :, 0]]


def keep(kept: KeptPrompts, *values: int) -> None:
    """Keep a prompt."""
    kept.keep(ids(*values), keys_values(ids(*values)))


def test_nothing_is_known_of_a_first_prompt() -> None:
    assert [] == start(KeptPrompts(EMPTY, tokens=10), 1, 2)


def test_the_longest_shared_start_wins() -> None:
    kept = KeptPrompts(EMPTY, tokens=100)
    for prompt in ((1, 2, 9), (1, 2, 3, 9), (1, 9), (8, 1, 2, 3, 4)):
        keep(kept, *prompt)
    assert [1, 2, 3] == start(kept, 1, 2, 3, 4)
    assert [1, 2, 3, 9] == start(kept, 1, 2, 3, 9, 9, 9)
    assert [1, 2] == start(kept, 1, 2)
    assert [] == start(kept, 7)


def test_the_one_used_longest_ago_goes_first() -> None:
    kept = KeptPrompts(EMPTY, tokens=6)
    keep(kept, 1, 1)
    keep(kept, 2, 2)
    keep(kept, 3, 3)
    start(kept, 1, 1)
    start(kept, 2, 2, 5)
    keep(kept, 4, 4)
    assert [[1, 1], [2, 2], [], [4, 4]] == [start(kept, i, i) for i in (1, 2, 3, 4)]


def test_a_prompt_kept_again_counts_once() -> None:
    kept = KeptPrompts(EMPTY, tokens=6)
    keep(kept, 1, 1)
    keep(kept, 1, 1)
    assert 2 == kept.tokens


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=12))
def test_what_is_found_is_a_start_of_the_prompt_and_never_more_is_kept_than_there_is_room(
    prompts: list[list[int]],
) -> None:
    kept = KeptPrompts(EMPTY, tokens=10)
    for prompt in prompts:
        found = start(kept, *prompt)
        assert prompt[: len(found)] == found
        keep(kept, *prompt)
        assert prompt == start(kept, *prompt)
        assert 10 >= kept.tokens
