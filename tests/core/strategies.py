"""What hypothesis draws for the core's tests: questions, question sets, probabilities, log-probabilities."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from structured_server.core.conditions import Conditions
from structured_server.core.questions import Choice, Noul, Question, Schema, Score
from tests.toy import LABELS

quick = settings(max_examples=40, deadline=None)

any_text = st.text(st.characters(), max_size=12)  # surrogates, control and private-use characters included
names = (st.sampled_from(LABELS) | st.sampled_from("ABCDabcd0123") | any_text).filter(str.strip)
descriptions = st.none() | any_text
plain_ids = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
identifiers = plain_ids | any_text.filter(bool)


def distinct_names(*, most: int) -> st.SearchStrategy[list[str]]:
    """Draw names that differ in more than white space."""
    return st.lists(names, min_size=2, max_size=most, unique_by=str.strip)


nouls = st.builds(Noul, instructions=names, true=descriptions, false=descriptions, threshold=st.floats(0, 1))
choices = st.builds(
    Choice,
    instructions=descriptions,
    criteria=distinct_names(most=8).flatmap(
        lambda words: st.tuples(*(st.tuples(st.just(word), descriptions) for word in words))
    ),
)
scores = st.builds(Score, instructions=descriptions, levels=distinct_names(most=10).map(tuple))
questions: st.SearchStrategy[Question] = nouls | choices | scores


def schemas(*, most: int = 6, ids: st.SearchStrategy[str] = identifiers) -> st.SearchStrategy[Schema]:
    """Draw question sets."""
    entries = st.lists(st.tuples(ids, questions), min_size=1, max_size=most, unique_by=lambda entry: entry[0])
    return entries.map(lambda drawn: Schema(tuple(drawn)))


@st.composite
def staged_schemas(draw: st.DrawFn, *, most: int = 6) -> Schema:
    """Draw question sets in which some questions wait for others, in any order."""
    asked = draw(schemas(most=most)).questions
    entries = []
    for index, (name, question) in enumerate(asked):
        before = st.lists(st.sampled_from(asked[:index]), max_size=2, unique=True) if index else st.just([])
        wanted = [(n, tuple(draw(st.sets(st.sampled_from(_keys(q)), min_size=1)))) for n, q in draw(before)]
        conditions = Conditions(tuple(n for n, _ in draw(before)), tuple(wanted), alone=draw(st.booleans()))
        entries.append((name, replace(question, conditions=conditions)))
    return Schema(tuple(draw(st.permutations(entries))))


def _keys(question: Question) -> list[str]:
    return [option.key for option in question.options]


def probabilities(least: int = 2, most: int = 12) -> st.SearchStrategy[tuple[float, ...]]:
    """Draw probabilities, some of them possibly 0, that sum to 1."""
    weights = st.lists(st.just(0.0) | st.floats(1e-6, 1), min_size=least, max_size=most).filter(any)
    return weights.map(lambda drawn: tuple(weight / sum(drawn) for weight in drawn))


logprobs = st.floats(-60, 0) | st.just(-9999.0) | st.just(float("-inf"))


def option_logprobs(most: int = 8) -> st.SearchStrategy[list[list[float]]]:
    """Draw log-probabilities of options with up to three variants, of which some label holds information."""
    option = st.lists(logprobs, min_size=1, max_size=3)
    return st.lists(option, min_size=2, max_size=most).filter(lambda options: max(map(max, options)) > -1000)
