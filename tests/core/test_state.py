"""Cutting a state: as much of it as there is room for, from where it was asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.state import GAP, LONGEST_TOKEN, LongState, cut_state
from tests.core.strategies import quick
from tests.toy import LABELS, ToyTokenizer

TOY = ToyTokenizer()
words = st.lists(st.sampled_from([*LABELS, " ", "x", "é", "\n"]), min_size=1, max_size=60).map("".join)
kept: st.SearchStrategy[LongState] = st.sampled_from(["head", "tail", "middle"])


def tokens(state: str) -> int:
    return len(TOY.encode(state))


counts: st.SearchStrategy[Callable[[str], int]] = st.sampled_from([len, tokens])


@quick
@given(words, kept, st.data(), counts)
def test_what_is_kept_fits(
    state: str, keep: LongState, data: st.DataObject, count: Callable[[str], int]
) -> None:
    room = data.draw(st.integers(0, count(state)))
    assert count(cut_state(state, keep, room, count)) <= room


@quick
@given(words, kept, st.data())
def test_one_more_character_would_not_fit(state: str, keep: LongState, data: st.DataObject) -> None:
    room = data.draw(st.integers(0, len(state) - 1))
    left = cut_state(state, keep, room, len)
    if keep == "middle":
        assert len(left) == (room if room > len(GAP) else 0)
    else:
        assert room == len(left)


@quick
@given(words, st.data())
def test_the_head_is_a_beginning_and_the_tail_an_end(state: str, data: st.DataObject) -> None:
    room = data.draw(st.integers(0, tokens(state)))
    assert state.startswith(cut_state(state, "head", room, tokens))
    assert state.endswith(cut_state(state, "tail", room, tokens))


@quick
@given(words, st.data())
def test_without_the_middle_both_ends_are_left_and_the_gap_is_marked(state: str, data: st.DataObject) -> None:
    room = data.draw(st.integers(len(GAP) + 1, len(GAP) + len(state)))
    left = cut_state(state, "middle", room, tokens)
    if left:
        head, gap, tail = left.rpartition(GAP)
        assert GAP == gap
        assert state.startswith(head)
        assert state.endswith(tail)
        assert len(head) - len(tail) in (0, 1)
        assert len(head) + len(tail) < len(state)


@pytest.mark.parametrize(
    ("keep", "room", "expected"),
    [
        ("head", 4, "0123"),
        ("tail", 4, "6789"),
        ("middle", 11, "01\n[...]\n89"),
        ("middle", 12, "012\n[...]\n89"),
        ("middle", 8, "0\n[...]\n"),
        ("middle", 7, ""),
        ("head", 0, ""),
        ("tail", 0, ""),
        ("head", -3, ""),
        ("middle", -3, ""),
    ],
)
def test_a_state_of_ten_characters_is_cut_where_it_is_asked_for(
    keep: LongState, room: int, expected: str
) -> None:
    assert expected.replace(r"\n", "\n") == cut_state("0123456789", keep, room, len)


def test_a_very_long_state_is_never_counted_whole() -> None:
    """Counting is tokenising: what cannot fit whatever the tokens are is not looked at."""
    longest = 0

    def count(state: str) -> int:
        nonlocal longest
        longest = max(longest, len(state))
        return len(state)

    assert "z" * 100 == cut_state("z" * 10_000_000, "head", 100, count)
    assert longest <= 100 * LONGEST_TOKEN
