"""Questions refuse nonsense, and say what their options are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given

from structured_server.core.questions import (
    MAX_LEVELS,
    MAX_OPTIONS,
    MAX_QUESTIONS,
    Choice,
    Limits,
    Noul,
    Option,
    Question,
    Schema,
    Score,
)
from structured_server.errors import InvalidQuestion, InvalidRequest
from tests.core.strategies import questions, quick

AB = (("a", None), ("b", None))


@quick
@given(questions)
def test_every_question_has_two_options_or_more_with_distinct_keys_and_words(question: Question) -> None:
    keys = {option.key for option in question.options}
    words = {option.word for option in question.options}
    assert len(question.options) == len(keys) == len(words) >= 2


@quick
@given(questions)
def test_words_have_no_white_space_around_them(question: Question) -> None:
    assert [option.word.strip() for option in question.options] == [o.word for o in question.options]


def test_a_noul_offers_yes_first_keyed_as_json_spells_it() -> None:
    noul = Noul("Is it?", true="it is", false=None)
    assert (Option("true", "yes", "it is"), Option("false", "no", None)) == noul.options


def test_a_choice_keeps_the_callers_order_and_keys_byte_for_byte() -> None:
    choice = Choice(None, (("b ", "second"), ("a", None)))
    assert (Option("b ", "b", "second"), Option("a", "a", None)) == choice.options


def test_a_score_keys_its_levels_by_index() -> None:
    assert (Option("0", "low"), Option("1", "high")) == Score(None, (" low", "high\n")).options


def test_a_score_may_have_as_many_levels_as_the_alphabet_has_letters() -> None:
    levels = tuple(f"level {index}" for index in range(26))
    assert MAX_LEVELS == len(Score(None, levels).options)


def test_each_kind_names_itself() -> None:
    kinds = [Noul("?").kind, Choice("?", AB).kind, Score("?", ("a", "b")).kind]
    assert ["noul", "choice", "score"] == kinds


@pytest.mark.parametrize(
    ("make", "path", "message"),
    [
        (lambda: Noul(), ("instructions",), "nothing says what is asked"),
        (lambda: Noul(" \n", "\t", ""), ("instructions",), "nothing says what is asked"),
        (lambda: Noul("?", threshold=1.01), ("threshold",), "must be from 0 to 1, got 1.01"),
        (lambda: Noul("?", threshold=-0.01), ("threshold",), "must be from 0 to 1, got -0.01"),
        (lambda: Noul("?", threshold=math.nan), ("threshold",), "must be from 0 to 1, got nan"),
        (lambda: Choice(None, ()), ("criteria",), "needs at least 2 options, got 0"),
        (lambda: Choice(None, AB[:1]), ("criteria",), "needs at least 2 options, got 1"),
        (lambda: Choice(None, (*AB, ("", None))), ("criteria",), "empty name"),
        (lambda: Choice(None, (*AB, (" \u3000", None))), ("criteria",), "empty name"),
        (lambda: Choice(None, (*AB, ("a", "x"))), ("criteria",), "same option twice (entries 0 and 2)"),
        (lambda: Choice(None, (*AB, (" b", "x"))), ("criteria",), "same option twice (entries 1 and 2)"),
        (lambda: Score(None, ("a",)), ("criteria",), "needs 2 to 26 levels, got 1"),
        (lambda: Score(None, tuple(map(str, range(27)))), ("criteria",), "needs 2 to 26 levels, got 27"),
        (lambda: Score(None, ("a", " ")), ("criteria", 1), "must not be empty"),
        (lambda: Score(None, ("a", "b", " a")), ("criteria",), "same level twice (entries 0 and 2)"),
        (lambda: Noul("?", aliases=(("yes", "y"),)), ("aliases", "yes"), "is no option"),
        (lambda: Choice(None, AB, aliases=(("b ", "y"),)), ("aliases", "b "), "is no option"),
        (lambda: Score(None, ("a", "b"), aliases=(("2", "y"),)), ("aliases", "2"), "is no option"),
        (lambda: Noul("?", aliases=(("true", ""),)), ("aliases", "true"), "must be a word"),
        (lambda: Noul("?", aliases=(("true", " y"),)), ("aliases", "true"), "must be a word"),
        (lambda: Noul("?", aliases=(("true", "y\n"),)), ("aliases", "true"), "must be a word"),
        (lambda: Noul("?", aliases=(("true", "y"), ("true", "z"))), ("aliases", "true"), "stands twice"),
        (
            lambda: Noul("?", aliases=(("true", "y"), ("false", "y"))),
            ("aliases", "false"),
            "alias of another option",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(
    make: Callable[[], Question], path: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(InvalidQuestion) as refused:
        make()
    assert path == refused.value.path
    assert message in refused.value.predicate


def test_a_choice_of_one_option_is_told_about_nouls() -> None:
    with pytest.raises(InvalidQuestion) as refused:
        Choice(None, AB[:1])
    assert "Use type noul for a yes/no question." == refused.value.hint


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_a_threshold_may_be_at_either_end(threshold: float) -> None:
    assert threshold == Noul("?", threshold=threshold).threshold


@pytest.mark.parametrize("true", ["it is", None])
def test_criteria_for_one_side_say_enough_for_a_noul(true: str | None) -> None:
    assert true == Noul(true=true, false="it is not").true


@pytest.mark.parametrize("name", ["min_top_probability", "max_normalized_entropy", "min_label_mass"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_a_limit_outside_0_to_1_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidQuestion) as refused:
        Limits(**{name: value})
    assert ("abstain", name) == refused.value.path


@pytest.mark.parametrize("value", [None, 0.0, 0.5, 1.0])
def test_a_limit_from_0_to_1_or_none_is_kept(value: float | None) -> None:
    assert value == Limits(min_label_mass=value).min_label_mass


def test_equal_questions_are_one_key_of_a_cache() -> None:
    makes: list[Callable[[], Question]] = [
        lambda: Noul("?", limits=Limits(0.5)),
        lambda: Choice("?", AB, aliases=(("a", "x"),)),
        lambda: Score("?", ("a", "b")),
    ]
    assert len(makes) == len({make() for make in makes} | {make() for make in makes})


def test_a_question_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(Noul("?"), "threshold", 0.9)  # noqa: B010  mypy knows that it is frozen


def test_kinds_with_the_same_fields_are_different_questions() -> None:
    asked: set[Question] = {Noul("?"), Choice("?", AB), Score("?", ("a", "b"))}
    assert 3 == len(asked)


@pytest.mark.parametrize(
    ("entries", "path", "message"),
    [
        ((), ("questions",), "needs at least one entry, got none."),
        ((("", Noul("?")),), ("questions",), "has a question with an empty id."),
        ((("q", Noul("?")), ("q", Noul("!"))), ("questions", "q"), "stands twice."),
    ],
)
def test_a_question_set_that_names_nothing_is_refused(
    entries: tuple[tuple[str, Question], ...], path: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Schema(entries)
    assert (path, message) == (refused.value.path, refused.value.predicate)


def test_a_question_set_counts_its_questions() -> None:
    assert 2 == len(Schema((("p", Noul("?")), ("q", Noul("?")))))


def test_a_choice_may_have_a_thousand_options_and_no_more() -> None:
    names = tuple((f"shelf {index}", None) for index in range(MAX_OPTIONS + 1))
    assert 1000 == len(Choice(None, names[:-1]).options)
    with pytest.raises(InvalidQuestion) as refused:
        Choice(None, names)
    assert (("criteria",), "may have at most 1000 options, got 1001.") == (
        refused.value.path,
        refused.value.predicate,
    )


def test_a_request_may_have_four_hundred_questions_and_no_more() -> None:
    entries = tuple((f"q{index}", Noul("?")) for index in range(MAX_QUESTIONS + 1))
    assert 400 == len(Schema(entries[:-1]))
    with pytest.raises(InvalidRequest) as refused:
        Schema(entries)
    assert (("questions",), "may have at most 400 entries, got 401.") == (
        refused.value.path,
        refused.value.predicate,
    )
    assert "Ask in several requests: questions that are read apart lose nothing by it." == refused.value.hint
