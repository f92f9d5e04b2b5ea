"""The answer text, and how questions are named in it."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.template import (
    Keys,
    TemplateStyle,
    choose_keys,
    differing_position,
    neutral_key,
    render_answer,
)
from structured_server.errors import InvalidRequest
from tests.core.strategies import any_text, quick


@quick
@given(st.dictionaries(any_text, any_text, max_size=5))
def test_a_json_answer_reads_back_as_its_pairs_in_order(pairs: dict[str, str]) -> None:
    assert list(pairs.items()) == list(json.loads(render_answer("json", list(pairs.items()))).items())


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("json", '{"urgent":"yes","équipe":"réseau"}'),
        ("lines", "urgent: yes\néquipe: réseau"),
    ],
)
def test_an_answer_is_compact_and_keeps_letters_beyond_ascii(style: TemplateStyle, expected: str) -> None:
    assert expected == render_answer(style, [("urgent", "yes"), ("équipe", "réseau")])


@quick
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_sequences_that_differ_in_one_place_tell_which(ids: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ids) - 1))
    changed = [*ids[:at], 10, *ids[at + 1 :]]
    assert at == differing_position(ids, changed) == differing_position(changed, ids)


@pytest.mark.parametrize(
    ("first", "second"),
    [((1, 2), (1, 2)), ((1, 2), (1, 2, 3)), ((1, 2, 3), (3, 2, 1)), ((), ())],
    ids=["equal", "longer", "two places", "empty"],
)
def test_other_sequences_have_no_differing_position(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert differing_position(first, second) is None


def test_neutral_keys_count_like_the_columns_of_a_sheet() -> None:
    expected = {0: "a", 1: "b", 25: "z", 26: "aa", 27: "ab", 51: "az", 52: "ba", 701: "zz", 702: "aaa"}
    assert expected == {index: neutral_key(index) for index in expected}


def test_neutral_keys_never_repeat_and_never_shrink() -> None:
    keys = [neutral_key(index) for index in range(2000)]
    assert len(keys) == len(set(keys))
    assert all(len(shorter) <= len(longer) for shorter, longer in pairwise(keys))


@pytest.mark.parametrize(
    ("identifiers", "keys", "expected"),
    [
        (["urgent", "team"], "auto", ("urgent", "team")),
        (["is_it_urgent", "a"], "auto", ("is_it_urgent", "a")),
        (["urgent", "Team"], "auto", ("a", "b")),
        (["urgent", "team2"], "auto", ("a", "b")),
        (["urgent", "über"], "auto", ("a", "b")),
        (["x__mirror_rev"], "auto", ("a",)),
        (["one_two_three_four"], "auto", ("a",)),
        (["_urgent"], "auto", ("a",)),
        (["urgent\n"], "auto", ("a",)),
        (["abcdefghijklmnopqrstuvwx"], "auto", ("abcdefghijklmnopqrstuvwx",)),
        (["abcdefghijklmnopqrstuvwxy"], "auto", ("a",)),
        (["x" * 100_000], "auto", ("a",)),
        (["urgent", "team"], "neutral", ("a", "b")),
        (["b", "a"], "neutral", ("a", "b")),
        (["x__mirror_rev", "Équipe 2"], "named", ("x__mirror_rev", "Équipe 2")),
    ],
)
def test_questions_are_named_by_their_ids_only_where_that_is_harmless_or_asked_for(
    identifiers: list[str], keys: Keys, expected: tuple[str, ...]
) -> None:
    assert expected == choose_keys(identifiers, keys)


@pytest.mark.parametrize("identifier", ['a"b', "a\\b", "a\nb", "a\x00", "\ud800", "a\u2028b", "\x7f", "\xa0"])
def test_an_id_that_would_be_escaped_cannot_name_a_question(identifier: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        choose_keys(["fine", identifier], "named")
    assert ("questions", identifier) == refused.value.path
    assert "Leave read.keys at auto, or choose neutral." == refused.value.hint


@quick
@given(st.lists(any_text, min_size=1, max_size=30, unique=True))
def test_keys_are_always_distinct(identifiers: list[str]) -> None:
    assert len(identifiers) == len(set(choose_keys(identifiers, "auto")))
