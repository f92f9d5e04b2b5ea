"""Control tokens' strings in text."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from structured_server.tokenizer.added import AddedToken, merge_added
from structured_server.tokenizer.control import ControlStrings, ControlToken

STRINGS = ControlStrings(
    [
        ControlToken(i, text)
        for i, text in enumerate(("<a>", "<a><b>", "<b>", "[x]", "b><", "\u00e9", "<unused1>"))
    ]
)


def test_text_is_split_at_the_leftmost_and_longest_strings() -> None:
    """As the `tokenizers` library does."""
    parts = [
        part if isinstance(part, str) else part.id for part in STRINGS.split("x<a><b><b>y[x]<unused1>> <a")
    ]
    assert ["x", 1, 2, "y", 3, 6, "> <a"] == parts


@given(st.text(alphabet="<ab>[x]\u00e9u1"))
def test_split_loses_nothing(text: str) -> None:
    """Joined, the parts are the text."""
    parts = list(STRINGS.split(text))
    assert text == "".join(part if isinstance(part, str) else part.text for part in parts)
    assert all(part for part in parts)


@given(st.text(alphabet="<ab>[x]\u00e9u1"))
def test_neutral_text_holds_no_string_however_they_overlap(text: str) -> None:
    """Breaking one must break those that share characters with it."""
    neutral = STRINGS.neutralise(text, "\u200b")
    assert not any(token.text in neutral for token in STRINGS)
    assert text.replace("\u00e9", "\ufffd") == neutral.replace("\u200b", "")


def test_no_control_tokens_means_that_text_is_left_alone() -> None:
    """An empty set is a set."""
    nothing = ControlStrings([])
    assert ["<a>"] == list(nothing.split("<a>"))
    assert "<a>" == nothing.neutralise("<a>", "\u200b")


def test_text_of_opening_brackets_costs_no_more_than_its_length() -> None:
    """Thousands of control tokens must not be tried at each bracket of a hostile state."""
    many = ControlStrings(ControlToken(i, f"<unused{i}>") for i in range(6000))
    begin = time.perf_counter()
    many.neutralise("<" * 100_000, "\u200b")
    assert time.perf_counter() - begin < 2


def test_only_white_space_and_html_tags_are_text_among_added_tokens() -> None:
    """By an explicit list: placeholders look just like tags."""
    text = ("\n", "\n\n", "▁▁", " ", "\t", "<table>", "</td>", "<b>", "<h1>", "<s>")
    control = (
        "<pad>",
        "<eos>",
        "<mask>",
        "<image>",
        "<video>",
        "<audio>",
        "<unused5>",
        "<bbox>",
        "</think>",
        "word",
        "<td",
    )
    assert all(AddedToken(each).is_text({"<bos>"}) for each in text)
    assert not any(AddedToken(each).is_text({"<bos>"}) for each in control)
    assert not AddedToken("<s>").is_text({"<s>"}), "named as a special token"
    assert not AddedToken("<b>", special=True).is_text(())
    assert not AddedToken("\n", special=True).is_text(())


def test_the_configuration_s_added_tokens_win_over_the_file_s() -> None:
    """But neither can take the special flag away."""
    listed = [AddedToken("a", special=True), AddedToken("b", lstrip=True)]
    merged = merge_added(listed, [AddedToken("a", rstrip=True), AddedToken("c")])
    assert (AddedToken("a", special=True, rstrip=True), listed[1], AddedToken("c")) == merged
