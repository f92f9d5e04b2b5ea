"""What is kept for prompts: those used last, never more tokens than allowed but for the last one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from structured_server.backends.transformers.prompts import PromptStore

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=6).map(tuple), max_size=30)


def test_the_longest_unused_is_dropped_first() -> None:
    store = PromptStore[str](6)
    store.put((1, 1), "a")
    store.put((2, 2), "b")
    store.put((3, 3), "c")
    assert "a" == store.get((1, 1))
    store.put((4, 4), "d")
    assert ["a", None, "c", "d"] == [store.get((i, i)) for i in (1, 2, 3, 4)]


def test_a_prompt_longer_than_all_that_may_be_kept_is_kept_alone() -> None:
    store = PromptStore[str](3)
    store.put((1,), "short")
    store.put((2, 2, 2, 2), "long")
    assert (None, "long", 4) == (store.get((1,)), store.get((2, 2, 2, 2)), store.tokens)
    store.put((1,), "short")
    assert (None, "short", 1) == (store.get((2, 2, 2, 2)), store.get((1,)), store.tokens)


def test_clearing_drops_all() -> None:
    store = PromptStore[str](3)
    store.put((1,), "a")
    store.clear()
    assert (None, 0) == (store.get((1,)), store.tokens)


@given(PROMPTS, st.integers(0, 12))
def test_the_last_prompt_is_always_kept_and_the_bound_holds_for_more_than_one(
    prompts: list[tuple[int, ...]], bound: int
) -> None:
    store = PromptStore[int](bound)
    for number, prompt in enumerate(prompts):
        if store.get(prompt) is None:
            store.put(prompt, number)
        assert store.get(prompt) is not None
        kept = [other for other in set(prompts) if store.get(other) is not None]
        assert sum(map(len, kept)) == store.tokens
        assert store.tokens <= max(bound, len(prompt))
