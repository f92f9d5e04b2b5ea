"""Labels: words where each is one token in its place, otherwise letters or digits."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.labels import choose_labels
from structured_server.core.questions import Aliases, Choice, Noul, Question, Score
from structured_server.core.template import TemplateStyle, differing_position, render_answer
from structured_server.errors import InvalidQuestion
from tests.core.strategies import distinct_names, questions, quick
from tests.toy import LABELS, ToyTokenizer

# In lines a label stands behind a space, so letters need a spelling with the space.
LETTERED = ToyTokenizer([*LABELS, *ascii_uppercase, "AA", "AB", "AC"])


def choice(*options: str, aliases: Aliases = ()) -> Choice:
    return Choice(None, tuple((name, None) for name in options), aliases=aliases)


def labels(
    question: Question,
    taken: Sequence[str] = (),
    *,
    style: TemplateStyle = "json",
    tokenizer: ToyTokenizer = LETTERED,
) -> str:
    """Choose labels and return them in one line."""
    return " ".join(choose_labels(tokenizer, style, "a", question, frozenset(taken)))


@quick
@given(questions, st.sampled_from(["json", "lines"]), st.sets(st.sampled_from("ABCDE0123")))
def test_labels_are_distinct_and_one_token_each_at_one_position(
    question: Question, style: TemplateStyle, taken: set[str]
) -> None:
    chosen = choose_labels(LETTERED, style, "key", question, taken)
    assert len(question.options) == len(chosen) == len(set(chosen))
    first, *others = [LETTERED.encode(render_answer(style, [("key", label)])) for label in chosen]
    positions = {differing_position(first, other) for other in others}
    assert 1 == len(positions)
    assert None not in positions


@quick
@given(questions, st.sampled_from(["json", "lines"]))
def test_labels_are_all_words_or_all_aliases(question: Question, style: TemplateStyle) -> None:
    chosen = choose_labels(LETTERED, style, "key", question)
    words = tuple(option.word for option in question.options)
    assert chosen == words or all(label.isdigit() or label.isupper() for label in chosen)


@quick
@given(questions, st.sampled_from(["json", "lines"]))
def test_an_alias_is_never_the_name_of_another_option(question: Question, style: TemplateStyle) -> None:
    chosen = choose_labels(LETTERED, style, "key", question)
    words = [option.word for option in question.options]
    assert not {label for label, word in zip(chosen, words, strict=True) if label != word} & set(words)


@quick
@given(distinct_names(most=6))
def test_whether_words_are_labels_does_not_depend_on_their_order(names: list[str]) -> None:
    words = {name.strip() for name in names}
    forwards = choose_labels(LETTERED, "json", "a", choice(*names))
    backwards = choose_labels(LETTERED, "json", "a", choice(*reversed(names)))
    assert (words == set(forwards)) == (words == set(backwards))


@pytest.mark.parametrize("style", ["json", "lines"])
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Noul("?"), "yes no"),
        (choice("compute", "networking", "security"), "compute networking security"),
        (choice(" compute", "billing\n"), "compute billing"),
        (choice("B", "A"), "B A"),
        (Score(None, ("none", "low", "high")), "none low high"),
        (Score(None, ("1", "2", "3")), "1 2 3"),
        (choice("compute", "object storage"), "A B"),
        (choice("low-a", "low-b"), "A B"),
        (choice("low", "low-b"), "A B"),
        (Score(None, ("not at all", "a bit", "very")), "0 1 2"),
        (Score(None, tuple(f"step {n}" for n in "abcdefghij")), "0 1 2 3 4 5 6 7 8 9"),
        (Score(None, tuple(f"step {n}" for n in "abcdefghijk")), "A B C D E F G H I J K"),
        (Score(None, tuple(f"step {n}" for n in ascii_uppercase)), " ".join(ascii_uppercase)),
        (choice(*(f"shelf {n}" for n in range(28))), " ".join([*ascii_uppercase, "AA", "AB"])),
    ],
    ids=str,
)
def test_words_are_labels_where_each_is_one_token_and_letters_or_digits_otherwise(
    question: Question, expected: str, style: TemplateStyle
) -> None:
    assert expected == labels(question, style=style)


@pytest.mark.parametrize("style", ["json", "lines"])
@pytest.mark.parametrize("word", ['"', "\\", "\n", "\x00", "\ud800", "\x7f", "\u2028", 'say "yes"', "C:\\"])
def test_a_word_that_would_be_escaped_is_never_a_label(word: str, style: TemplateStyle) -> None:
    tokenizer = ToyTokenizer(["yes", "A", "B", f"x{word}x"])
    assert "A B" == labels(choice("yes", f"x{word}x"), style=style, tokenizer=tokenizer)


@pytest.mark.parametrize("word", ["é", "高", "ß", "🙂"])
def test_a_word_beyond_ascii_is_a_label_where_it_is_one_token(word: str) -> None:
    assert f"yes {word}" == labels(choice("yes", word))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (choice("A", "B", "object storage"), "C D E"),
        (choice("B", "A", "object storage"), "C D E"),
        (choice("b", "a", "object storage"), "C D E"),
        (choice("A", "object storage"), "B C"),
        (Score(None, ("A", "B+", "B")), "0 1 2"),
        (choice(*ascii_uppercase, "object storage"), f"AA AB AC no {' '.join(ascii_uppercase[:23])}"),
    ],
    ids=str,
)
def test_a_letter_that_names_an_option_stands_for_no_option_while_others_are_left(
    question: Question, expected: str
) -> None:
    assert expected == labels(question)


@pytest.mark.parametrize(
    "levels", [("1", "2", "3 or more"), ("1: none", "2: some"), ("0 = never", "often"), ("never", "7 days")]
)
def test_levels_that_carry_numbers_are_never_counted_by_other_numbers(levels: tuple[str, ...]) -> None:
    assert not any(label.isdigit() for label in labels(Score(None, levels)).split())


@pytest.mark.parametrize(
    ("question", "taken", "expected"),
    [
        (choice("x-ray", "y-axis"), "AB", "C D"),
        (choice("x-ray", "y-axis"), "B", "A C"),
        (choice("x-ray", "y-axis"), ascii_uppercase, "AA AB"),
        (choice("x-ray", "y-axis"), [*ascii_uppercase, "AA", "AB"], "AC no"),
        (choice("x-ray", "y-axis"), [*ascii_uppercase, "AA", "AB", "no"], "AC A"),
        (choice("x-ray", "y-axis"), [*ascii_uppercase, "AA", "AB", "AC", "no"], "A B"),
        (choice("x-ray", "y-axis"), ["yes", "no"], "A B"),
        (Score(None, ("x-ray", "y-axis")), "2345", "0 1"),
        (Score(None, ("x-ray", "y-axis")), "12", "A B"),
        (Score(None, ("x-ray", "y-axis")), "0A", "B C"),
        (Noul("?"), ["yes", "no"], "yes no"),
    ],
)
def test_aliases_avoid_the_labels_of_neighbours_while_others_are_left(
    question: Question, taken: Sequence[str], expected: str
) -> None:
    assert expected == labels(question, taken)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Noul("?", aliases=(("true", "Y"), ("false", "N"))), "Y N"),
        (Noul("?", aliases=(("false", "N"),)), "yes N"),
        (Noul("?", aliases=(("true", "no"), ("false", "yes"))), "no yes"),
        (Noul("?", aliases=(("true", "1"), ("false", "0"))), "1 0"),
        (choice("yes", "object storage", aliases=(("object storage", "storage"),)), "yes storage"),
        (Score(None, ("quite bad", "very bad"), aliases=(("0", "B"), ("1", "C"))), "B C"),
    ],
    ids=str,
)
@pytest.mark.parametrize("style", ["json", "lines"])
def test_the_callers_aliases_are_honoured_even_where_neighbours_have_them(
    question: Question, expected: str, style: TemplateStyle
) -> None:
    assert expected == labels(question, expected.split(), style=style)


@pytest.mark.parametrize(
    ("question", "path", "message"),
    [
        (Noul("?", aliases=(("true", "yep"),)), ("aliases", "true"), "no single token"),
        (Noul("?", aliases=(("true", "Y"), ("false", "y\n!"))), ("aliases", "false"), "no single token"),
        (Noul("?", aliases=(("true", '"'),)), ("aliases", "true"), "no single token"),
        (Noul("?", aliases=(("true", "no"),)), ("aliases",), "makes two labels alike"),
        (choice("yes", "x-ray", aliases=(("yes", "Y"),)), ("aliases",), "leaves out options"),
        (choice("yes", "x-ray", aliases=(("x-ray", "yes"),)), ("aliases",), "makes two labels alike"),
    ],
    ids=str,
)
def test_an_alias_that_cannot_be_a_label_is_explained(
    question: Question, path: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidQuestion) as refused:
        labels(question)
    assert path == refused.value.path
    assert message in refused.value.predicate
    assert refused.value.hint


def test_aliases_in_two_frames_are_refused_together() -> None:
    """Behind a space, a letter takes the space into its token and a digit does not."""
    assert "A B" == labels(Noul("?", aliases=(("true", "A"), ("false", "B"))), style="lines")
    with pytest.raises(InvalidQuestion, match="makes two labels alike"):
        labels(Noul("?", aliases=(("true", "A"), ("false", "0"))), style="lines")


def test_words_in_two_frames_are_aliased() -> None:
    assert "A B" == labels(choice("yes", "é"), style="lines")


def test_more_options_than_labels_are_refused_with_the_number() -> None:
    with pytest.raises(InvalidQuestion) as refused:
        labels(choice(*(f"shelf {n}" for n in range(31))))
    assert ("criteria",) == refused.value.path
    assert "has 31 options, more than this tokenizer has labels for." == refused.value.predicate


def test_a_letter_that_is_no_token_is_left_out() -> None:
    tokenizer = ToyTokenizer(["A", "B", "D", "E"])  # " C" is two tokens
    assert "A B D" == labels(choice("x-ray", "y-axis", "z-score"), style="lines", tokenizer=tokenizer)


def test_pairs_of_letters_follow_the_alphabet_upper_case_first_and_mixed_last() -> None:
    """Any lower-case word of two letters that is a token, such as "no" here, is a pair like others."""
    tokenizer = ToyTokenizer(["Ab", "zz", "aa", "ZZ", "AA", *reversed(ascii_uppercase)])
    chosen = labels(choice(*(f"shelf {n}" for n in range(31))), tokenizer=tokenizer)
    assert f"{' '.join(ascii_uppercase)} AA ZZ aa zz Ab" == chosen


@pytest.mark.parametrize("style", ["json", "lines"])
def test_a_thousand_options_have_a_label_each(style: TemplateStyle) -> None:
    pairs = [one + other for one in ascii_uppercase for other in ascii_uppercase]
    tokenizer = ToyTokenizer([*ascii_uppercase, *pairs, *(pair.lower() for pair in pairs)])
    shelves = choice(*(f"shelf {n}" for n in range(1000)))
    chosen = choose_labels(tokenizer, style, "a", shelves)
    assert 1000 == len(set(chosen))
    beside = choose_labels(tokenizer, style, "b", choice("x-ray", "y-axis"), frozenset(chosen))
    assert set(chosen).isdisjoint(beside)
