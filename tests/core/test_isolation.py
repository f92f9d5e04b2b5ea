"""Read apart with the state first, questions never influence one another: not by a byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core import conditions
from structured_server.core.conditions import Conditions
from structured_server.core.plan import ReadOptions
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.reads import Image
from structured_server.jobs import Matter
from tests.core.jobs import MATTER, job_of, requests_of
from tests.core.strategies import plain_ids, questions, quick, schemas, staged_schemas

APART = ReadOptions(isolate="all", layout="document_first")
OWN = "the question itself"

apart = st.builds(
    ReadOptions,
    isolate=st.just("all"),
    layout=st.just("document_first"),
    template=st.sampled_from(["json", "lines"]),
    keys=st.sampled_from(["auto", "neutral"]),
    scaffold=st.sampled_from(["prompt", "canvas"]),
    rotate=st.booleans(),
    restate=st.booleans(),
)
others = schemas(most=5, ids=plain_ids).map(lambda drawn: drawn.questions)


def bytes_of(asked: Schema, name: str, options: ReadOptions, **changes: Any) -> tuple[object, ...]:
    """Return all that reading a question sends, and the seed of its noise."""
    made = job_of(asked, name, options, **changes)
    return (made.seed, *requests_of(made))


@quick
@given(questions, others, others, apart, st.data())
def test_no_other_question_changes_a_byte(
    own: Question,
    some: tuple[tuple[str, Question], ...],
    more: tuple[tuple[str, Question], ...],
    read: ReadOptions,
    data: st.DataObject,
) -> None:
    """Whether others are added, taken away, renamed, changed or put in another order."""
    name = data.draw(st.sampled_from([OWN, "plain_word"]))
    alone = bytes_of(Schema(((name, own),)), name, read)
    for beside in (some, more):
        entries = data.draw(st.permutations([(name, own), *beside]))
        assert alone == bytes_of(Schema(tuple(entries)), name, read)


@quick
@given(questions, others, apart)
def test_a_question_that_is_to_be_alone_notices_no_other_in_any_isolation(
    own: Question, beside: tuple[tuple[str, Question], ...], read: ReadOptions
) -> None:
    entry = (OWN, replace(own, conditions=Conditions(alone=True)))
    read = replace(read, isolate="none")
    assert bytes_of(Schema((entry,)), OWN, read) == bytes_of(Schema((*beside, entry)), OWN, read)


@quick
@given(staged_schemas(), others, apart, st.data())
def test_what_a_question_does_not_rest_on_changes_no_byte_of_it(
    asked: Schema, beside: tuple[tuple[str, Question], ...], read: ReadOptions, data: st.DataObject
) -> None:
    """A question with answers before it is the same read among those alone and among all others."""
    by_name = dict(asked.questions)
    name = data.draw(st.sampled_from(list(by_name)))
    rests_on = conditions.given(by_name, name)
    related = tuple((n, by_name[n]) for n in by_name if n in rests_on or n == name)
    answers = {n: data.draw(st.integers(0, len(by_name[n].options) - 1)) for n in rests_on}
    added = tuple((f"another {n}", q) for n, q in beside)
    cut = data.draw(st.integers(0, len(by_name)))
    everything = Schema((*asked.questions[:cut], *added, *asked.questions[cut:]))
    alone = bytes_of(Schema(related), name, read, answers=answers)
    assert alone == bytes_of(everything, name, read, answers=answers)


@quick
@given(staged_schemas(), apart)
def test_with_neutral_keys_no_name_changes_a_byte(asked: Schema, read: ReadOptions) -> None:
    """Also where the names are those of questions whose answers stand before, or before those."""
    read = replace(read, keys="neutral")
    new = {name: f"q{index}" for index, (name, _) in enumerate(asked.questions)}
    renamed = Schema(tuple((new[name], _renamed(question, new)) for name, question in asked.questions))
    for name, _ in asked.questions:
        assert bytes_of(asked, name, read) == bytes_of(renamed, new[name], read)


def _renamed(question: Question, new: dict[str, str]) -> Question:
    before = question.conditions
    depends_on = tuple(new[name] for name in before.depends_on)
    ask_if = tuple((new[name], wanted) for name, wanted in before.ask_if)
    return replace(question, conditions=Conditions(depends_on, ask_if, before.alone))


NOUL = Noul("Is it?")
TEAM = Choice("Whose?", (("compute", None), ("billing", None)))
AFTER = replace(NOUL, conditions=Conditions(("team",)))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (replace(TEAM, limits=Limits(min_top_probability=0.5)), AFTER),
        (TEAM, replace(AFTER, threshold=0.9)),
        (TEAM, replace(AFTER, limits=Limits(min_label_mass=0.1))),
        (TEAM, replace(AFTER, conditions=Conditions((), (("team", ("compute",)),)))),
    ],
    ids=["limits before", "threshold", "limits", "condition"],
)
def test_what_is_done_with_answers_changes_no_byte(before: Question, now: Question) -> None:
    plain = bytes_of(Schema((("team", TEAM), ("own", AFTER))), "own", APART)
    assert plain == bytes_of(Schema((("team", before), ("own", now))), "own", APART)


@pytest.mark.parametrize("restate", [False, True])
def test_another_answer_before_a_question_is_another_read_with_other_noise(restate: bool) -> None:
    asked = Schema((("team", TEAM), ("own", AFTER)))
    read = replace(APART, restate=restate)
    one, other = (job_of(asked, "own", read, answers={"team": answer}) for answer in (0, 1))
    assert one.seed != other.seed
    assert one.arrangements[0].prompt.ids != other.arrangements[0].prompt.ids
    assert one.group == other.group


@pytest.mark.parametrize(
    "other",
    [
        Matter("another state", seed=7),
        Matter("the state", seed=8),
        Matter("the state", (Image("image/png", b"1"),), seed=7),
        Matter("the state", (Image("image/jpeg", b"1"),), seed=7),
        Matter("the state", (Image("image/png", b"1"), Image("image/png", b"2")), seed=7),
        Matter("the state", (Image("image/png", b"2"), Image("image/png", b"1")), seed=7),
    ],
    ids=["state", "seed", "image", "type of image", "two images", "order of images"],
)
def test_what_the_questions_are_about_changes_the_noise(other: Matter) -> None:
    asked = Schema((("own", NOUL),))
    plain, changed = (job_of(asked, "own", APART, matter=matter) for matter in (MATTER, other))
    assert plain.seed != changed.seed
    assert other.images == changed.request(0).prompt.images


def test_a_score_beside_it_in_the_same_canvas_is_noticed() -> None:
    """Which is what isolation is for."""
    together = replace(APART, isolate="none")
    beside = Schema((("own", NOUL), ("bad", Score("How bad?", ("none", "low")))))
    alone = bytes_of(Schema((("own", NOUL),)), "own", together)
    assert alone != bytes_of(beside, "own", together)
    assert alone == bytes_of(beside, "own", APART)
