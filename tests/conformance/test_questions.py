"""What may be asked: ids, names, criteria, and how many of each."""

from __future__ import annotations

import os
import unicodedata
from typing import Any

import pytest
from typesafe_sdk import Choice, Noul, Question, Score, TypeSafeAPIError, TypeSafeClient

from tests.conformance.asked import STATE
from tests.conformance.judging import judge_choice, judge_noul, judge_score
from tests.conformance.target import EXTRAS, TIMEOUT

IDS = ("a b", "x.y", "k:v", "질문", "emoji🙂", "UPPER-lower_1", "0", "answers", "model")
NAMES = (
    "café",
    unicodedata.normalize("NFD", "naïve"),
    "日本語",
    "עברית",
    "👩‍💻",
    'say "hi"',
    " padded ",
    "back\\slash",
    "Yes",
    "yes",
)
NOULS: dict[str, Question] = {
    "none": Noul(instructions="Urgent?"),
    "null": {"type": "noul", "instructions": "Urgent?", "criteria": None},
    "both": Noul(instructions="Urgent?", criteria={"true": "has to be done today", "false": "has time"}),
    "only true": Noul(instructions="Urgent?", criteria={"true": "has to be done today"}),
    "only false": Noul(instructions="Urgent?", criteria={"false": "has time"}),
    "structured": Noul(
        instructions="Urgent?", criteria={"true": {"means": "today", "such as": ["now"]}, "false": ["later"]}
    ),
    "no instructions": Noul(criteria={"true": "wants money back"}),
}


def test_question_ids_come_back_as_they_were_sent(sdk: TypeSafeClient) -> None:
    answers = sdk.system_one(STATE, {name: Noul(instructions="Urgent?") for name in IDS}).answers
    assert set(IDS) == set(answers)


def test_option_names_come_back_byte_for_byte(sdk: TypeSafeClient) -> None:
    question = Choice(instructions="Which?", criteria=dict.fromkeys(NAMES))
    judge_choice(sdk.system_one("Ünïcødé, 你好 👋🏽", {"q": question}).choices["q"], NAMES)


def test_the_criteria_of_a_noul_may_be_absent_one_sided_or_structured(sdk: TypeSafeClient) -> None:
    answers = sdk.system_one(STATE, NOULS).answers
    assert set(NOULS) == set(answers)
    for answer in answers.values():
        judge_noul(answer)


def test_instructions_and_descriptions_may_be_structured_or_absent(sdk: TypeSafeClient) -> None:
    levels = [{"name": "calm"}, ["irritated"], "furious"]
    questions: dict[str, Question] = {
        "choice": Choice(
            instructions={"question": "Whose is `a`?", "rules": ["billing first"]},
            criteria={"billing": {"covers": ["refunds"]}, "technical": ["bugs", "outages"], "other": None},
        ),
        "score": Score(instructions=["How angry?", "0 is calm"], criteria=levels),
        "bare choice": Choice(criteria={"refund": None, "cancel": None}),
        "bare score": Score(criteria=["calm", "angry"]),
    }
    answers = sdk.system_one({"a": STATE}, questions).answers
    judge_choice(answers["choice"], ["billing", "technical", "other"])
    judge_score(answers["score"], levels)
    judge_choice(answers["bare choice"], ["refund", "cancel"])
    judge_score(answers["bare score"], ["calm", "angry"])


@pytest.mark.parametrize("count", [2, 26, 27, 52, 53, 128, 255])
def test_a_choice_may_have_up_to_255_options(sdk: TypeSafeClient, count: int) -> None:
    names = [f"option {number}" for number in range(count)]
    question = Choice(instructions="Which?", criteria=dict.fromkeys(names))
    judge_choice(sdk.system_one(STATE, {"q": question}).choices["q"], names)


@pytest.mark.parametrize("count", range(2, 11))
def test_a_score_may_have_2_to_10_levels(sdk: TypeSafeClient, count: int) -> None:
    levels = [f"level {number}" for number in range(count)]
    question = Score(instructions="How much?", criteria=levels)
    judge_score(sdk.system_one(STATE, {"q": question}).scores["q"], levels)


@pytest.mark.parametrize(
    "question",
    [
        Choice(instructions="Which?", criteria={"only": None}),
        Score(instructions="How much?", criteria=["only"]),
    ],
    ids=["one option", "one level"],
)
def test_a_single_option_is_answered_or_refused(sdk: TypeSafeClient, question: Question) -> None:
    try:
        answer = sdk.system_one(STATE, {"q": question}).answers["q"]
    except TypeSafeAPIError as error:
        assert 400 <= error.status < 500  # noqa: PT017 - either is right
    else:
        judge = judge_choice if isinstance(question, Choice) else judge_score
        judge(answer, ["only"])


def test_sixty_four_questions_fit_a_request(sdk: TypeSafeClient) -> None:
    _ask_nouls(sdk, 64)


def test_four_hundred_questions_fit_a_request(sdk: TypeSafeClient) -> None:
    _ask_nouls(sdk, 400, extra_body=EXTRAS or _more_time_where_others_compute())


def _more_time_where_others_compute() -> dict[str, Any]:
    # How long 400 questions take says nothing about the server where others want all the cores.
    crowded = os.getloadavg()[0] > (os.cpu_count() or 1)
    return {"deadline_ms": int(TIMEOUT * 1000)} if crowded else {}


def _ask_nouls(sdk: TypeSafeClient, count: int, **options: Any) -> None:
    questions = {f"q{number}": Noul(instructions=f"Is topic {number} named?") for number in range(count)}
    answers = sdk.system_one(STATE, questions, **options).answers
    assert set(questions) == set(answers)
    for answer in answers.values():
        judge_noul(answer)
