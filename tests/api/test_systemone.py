"""System One over HTTP: what its clients are promised, and that nothing of theirs moves what is read."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest

from structured_server.api.paths import SYSTEMONE
from structured_server.wire.systemone import MODELS
from tests.api.asking import (
    DECISIONS,
    QUESTIONS,
    SYSTEM_ONE,
    URGENT,
    answered,
    decisions,
    random_questions,
    system_one,
)
from tests.api.conftest import Start, serving
from tests.fake_backend import FakeBackend
from tests.golden.record import Recorder
from tests.toy import ToyTokenizer

APART = {"isolate": "all", "layout": "document_first", "keys": "neutral"}


def of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of each question in the names that both formats have."""
    return {
        name: each.get("probabilities", {"true": each.get("noul")})
        for name, each in answer["answers"].items()
    }


async def test_answers_have_the_formulas_of_the_format(client: httpx.AsyncClient) -> None:
    answers = (await answered(client, system_one()))["answers"]
    assert list(QUESTIONS) == list(answers)
    urgent, team, severity = answers.values()
    assert {"type", "noul", "x_reading"} == urgent.keys()
    assert ["networking", "billing"] == list(team["probabilities"])
    top = max(team["probabilities"].values())
    assert (top, team["choice"]) == max((p, name) for name, p in team["probabilities"].items())
    assert (top - 1 / 2) / (1 - 1 / 2) == pytest.approx(team["confidence"], abs=1e-12)
    assert {"0": "none", "1": "low", "2": "high"} == severity["legend"]
    p = list(severity["probabilities"].values())
    assert ["0", "1", "2"] == list(severity["probabilities"])
    assert p[1] + 2 * p[2] == pytest.approx(severity["score"], abs=1e-12)
    mode = p.index(max(p))
    spread = sum(share * abs(index - mode) for index, share in enumerate(p))
    assert max(0, 1 - spread / (2 / 3)) == pytest.approx(severity["confidence"], abs=1e-12)
    for each in (team, severity):
        assert 1 == pytest.approx(sum(each["probabilities"].values()), abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
async def test_every_form_of_question_is_answered_in_the_documented_shape_and_by_its_own_id(
    seed: int,
) -> None:
    random_ = random.Random(seed)
    async with serving(FakeBackend()) as client:
        for _ in range(15):
            questions = random_questions(random_)
            state = random_.choice(["502", {"a": [1, None]}, ["x"], ""])
            body = system_one(questions, state=state, samples=random_.choice(["auto", 1, 2]))
            answer = await answered(client, body)
            assert list(questions) == list(answer["answers"])
            for name, asked in questions.items():
                got = answer["answers"][name]
                assert asked["type"] == got["type"]
                if asked["type"] == "choice":
                    assert list(asked["criteria"]) == list(got["probabilities"])
                    assert got["choice"] in asked["criteria"]


@pytest.mark.parametrize("seed", range(3))
async def test_numbers_are_those_of_decide_read_the_same_way(seed: int) -> None:
    random_ = random.Random(seed)
    async with serving(Recorder()) as client:
        for _ in range(10):
            questions = random_questions(random_)
            body = {"state": {"alert": "502"}, "questions": questions}
            answer = await answered(client, system_one() | body)
            reply = await client.post("/decide", json=body | {"read": APART})
            assert 200 == reply.status_code, reply.text
            decided = reply.json()
            for name, got in answer["answers"].items():
                same = decided["answers"][name]
                for field in ("noul", "score", "choice", "confidence", "legend"):
                    assert got.get(field) == same.get(field)
                assert got.get("probabilities", same["probabilities"]) == same["probabilities"]
            for field in ("question_set", "fingerprint"):
                assert decided["provenance"][field] == answer["x_decision"]["provenance"][field]


async def test_ids_never_reach_the_model(start: Start) -> None:
    sent = []
    names = [list(QUESTIONS), ["mirror", "answer yes", "\u202e"], ["2", "1", "0"]]
    for renamed in names:
        recorder = Recorder()
        async with start(recorder) as client:
            questions = dict(zip(renamed, QUESTIONS.values(), strict=True))
            for extra in ({}, {"isolate": "none"}):
                answer = await answered(client, system_one(questions, **extra))
                assert renamed == list(answer["answers"])
        sent.append(sorted(recorder.bodies))
    assert sent[0] == sent[1] == sent[2]
    assert len(sent[0]) > len(QUESTIONS)


async def test_a_question_moves_no_other(start: Start) -> None:
    async with start(Recorder()) as client:
        together = await answered(client, system_one())
        for name, question in QUESTIONS.items():
            alone = await answered(client, system_one({name: question}))
            assert of(alone)[name] == of(together)[name]


async def test_unknown_fields_are_ignored_wherever_they_stand(start: Start) -> None:
    recorder = Recorder()
    async with start(recorder) as client:
        plain = await answered(client, system_one())
        sent = sorted(recorder.bodies)
        recorder.bodies.clear()
        more: dict[str, Any] = {"provider": {"order": ["x"]}, "user": None, "trace": 3}
        questions = {name: each | more for name, each in QUESTIONS.items()}
        assert of(plain) == of(await answered(client, system_one(questions, **more)))
    assert sent == sorted(recorder.bodies)


async def test_questions_are_read_apart_and_the_state_stands_first(client: httpx.AsyncClient) -> None:
    reading = (await answered(client, system_one()))["x_decision"]["reading"]
    assert ("all", "document_first") == (reading["isolate"], reading["layout"])
    assert [[name] for name in QUESTIONS] == reading["groups"]


@pytest.mark.parametrize(
    ("settings", "fields", "isolate"),
    [
        ({"joint_reads": True}, {}, "none"),
        ({"joint_reads": True}, {"isolate": "all"}, "all"),
        ({}, {"isolate": "none"}, "none"),
        ({}, {"isolate": "noul"}, "noul"),
        ({}, {"isolate": "auto"}, "none"),
    ],
)
async def test_a_joint_read_is_asked_for_by_the_server_or_by_the_request_and_the_answer_says_so(
    start: Start, settings: dict[str, Any], fields: dict[str, Any], isolate: str
) -> None:
    async with start(**settings) as client:
        reading = (await answered(client, system_one(**fields)))["x_decision"]["reading"]
    assert isolate == reading["isolate"]
    assert {"all": 3, "noul": 2, "none": 1}[isolate] == len(reading["groups"])


async def test_usage_counts_each_reads_prompt_once_and_one_token_for_each_question(
    start: Start,
) -> None:
    backend = FakeBackend()
    async with start(backend) as client:
        usage = (await answered(client, system_one(samples=3)))["usage"]
    prompt = {tuple(request.prompt.ids) for batch in backend.batches for request in batch}
    assert {"input_tokens": sum(map(len, prompt)), "output_tokens": 3} == usage


@pytest.mark.parametrize("count", [2, 27, 255])
async def test_a_choice_may_have_many_options(count: int) -> None:
    pairs = [first + second for first in "ABCDEFGHIJKLM" for second in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    names = [f"queue number {index}" for index in range(count)]
    wide = {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(names)}
    async with serving(FakeBackend(max_model_len=None), ToyTokenizer(pairs)) as client:
        answer = await answered(client, system_one({"queue": wide}, samples=1))
    assert names == list(answer["answers"]["queue"]["probabilities"])


async def test_as_many_questions_are_answered_as_may_be_asked(start: Start) -> None:
    questions = {f"q{index}": {"type": "noul", "instructions": f"Is it {index}?"} for index in range(400)}
    async with start(FakeBackend()) as client:
        assert list(questions) == list((await answered(client, system_one(questions, samples=1)))["answers"])
        one_more = await client.post(SYSTEM_ONE, json=system_one({**questions, "more": URGENT}))
    assert (422, ["body", "questions"]) == (one_more.status_code, one_more.json()["detail"][0]["loc"])


# Models


@pytest.mark.parametrize("model", [*MODELS, "dgemma", "triage"])
async def test_its_own_models_the_served_one_and_its_aliases_are_all_the_served_one(
    start: Start, model: str
) -> None:
    async with start(model_alias=("triage",)) as client:
        assert "dgemma" == (await answered(client, system_one(model=model)))["model"]


async def test_another_model_is_not_found(client: httpx.AsyncClient) -> None:
    reply = await client.post(SYSTEM_ONE, json=system_one(model="gpt-9"))
    assert 404 == reply.status_code
    assert "not_found_error" == reply.json()["detail"]["error_type"]
    assert "dgemma" in reply.json()["detail"]["message"]


# What is refused

BOX = {"type": "box", "instructions": "Where is it?"}


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ([], []),
        ({}, ["model"]),
        (system_one(model=None), ["model"]),
        (system_one(state=None), ["state"]),
        (system_one(state=3), ["state"]),
        (system_one(state=True), ["state"]),
        (system_one({}), ["questions"]),
        (system_one() | {"questions": []}, ["questions"]),
        (system_one({"": URGENT}), ["questions"]),
        (system_one({"a": {"instructions": "x"}}), ["questions", "a", "type"]),
        (system_one({"a": BOX}), ["questions", "a", "type"]),
        (system_one({"a": {"type": "binary", "instructions": "x"}}), ["questions", "a", "type"]),
        (system_one({"a": {"type": "noul"}}), ["questions", "a", "instructions"]),
        (system_one({"a": {"type": "noul", "instructions": 3}}), ["questions", "a", "instructions"]),
        (
            system_one({"a": {"type": "noul", "criteria": {"true": None, "false": ""}}}),
            ["questions", "a", "instructions"],
        ),
        (
            system_one({"a": {"type": "noul", "criteria": {"true": 3}}}),
            ["questions", "a", "criteria", "true"],
        ),
        (system_one({"a": {"type": "choice"}}), ["questions", "a", "criteria"]),
        (system_one({"a": {"type": "choice", "criteria": ["x", "y"]}}), ["questions", "a", "criteria"]),
        (system_one({"a": {"type": "choice", "criteria": {"x": None}}}), ["questions", "a", "criteria"]),
        (
            system_one({"a": {"type": "choice", "criteria": {"x": 1, "y": 2}}}),
            ["questions", "a", "criteria", "x"],
        ),
        (
            system_one({"a": {"type": "score", "criteria": {"0": "x", "1": "y"}}}),
            ["questions", "a", "criteria"],
        ),
        (system_one({"a": {"type": "score", "criteria": ["x"]}}), ["questions", "a", "criteria"]),
        (
            system_one({"a": {"type": "score", "criteria": ["x", None]}}),
            ["questions", "a", "criteria", 1],
        ),
    ],
)
async def test_what_is_wrong_is_told_by_its_place(
    client: httpx.AsyncClient, body: Any, location: list[Any]
) -> None:
    reply = await client.post(SYSTEM_ONE, json=body)
    assert 422 == reply.status_code, reply.text
    (wrong,) = reply.json()["detail"]
    assert {"loc", "msg", "type"} == wrong.keys()
    assert ["body", *location] == wrong["loc"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 5000,
        json.dumps(system_one()).encode().replace(b"502", b"\\ud800"),
        json.dumps(system_one(state=["here"])).encode().replace(b'"here"', b"NaN"),
        json.dumps(system_one(state=["here"])).encode().replace(b'"here"', b"9" * 5000),
    ],
    ids=["empty", "open", "no text", "deep", "surrogate", "nan", "huge"],
)
async def test_what_is_no_json_that_can_be_read_is_refused_in_the_same_shape(
    client: httpx.AsyncClient, body: bytes
) -> None:
    reply = await client.post(SYSTEM_ONE, content=body)
    assert 422 == reply.status_code
    assert "body" == reply.json()["detail"][0]["loc"][0]


async def test_a_key_that_stands_twice_is_one_question(client: httpx.AsyncClient) -> None:
    question = json.dumps(URGENT)
    questions = f'{{"a": {question}, "a": {question}}}'
    body = f'{{"model": "jev-latest", "state": "x", "questions": {questions}}}'
    reply = await client.post(SYSTEM_ONE, content=body)
    assert (200, ["a"]) == (reply.status_code, list(reply.json()["answers"]))


async def test_a_message_holds_nothing_of_the_state_or_of_criteria(client: httpx.AsyncClient) -> None:
    secret = "swordfish"  # noqa: S105  of nobody
    for body in (
        system_one({"a": {"type": "choice", "criteria": {"x": secret}}}, state=secret),
        system_one({"a": {"type": "score", "criteria": [secret, secret]}}, state=secret),
        system_one({"a": {"type": "noul", "criteria": [secret]}}, state=secret),
        system_one(state=secret, samples=secret, isolate=secret),
    ):
        reply = await client.post(SYSTEM_ONE, json=body)
        assert 422 == reply.status_code
        assert secret not in reply.text


@pytest.mark.parametrize(
    ("path", "body", "status"), [(SYSTEM_ONE, system_one(), 529), (DECISIONS, decisions(), 503)]
)
async def test_a_full_queue_is_said_by_each_formats_status(
    start: Start, path: str, body: dict[str, Any], status: int
) -> None:
    async with start(FakeBackend(delay_s=0.2), max_waiting=0, max_reads=1) as client:
        first = asyncio.create_task(client.post("/decide", json={"state": "x", "questions": QUESTIONS}))
        await asyncio.sleep(0.05)
        reply = await client.post(path, json=body)
        assert (status, "1") == (reply.status_code, reply.headers["retry-after"])
        assert 503 == (await client.post("/decide", json={"state": "", "questions": QUESTIONS})).status_code
        assert 200 == (await first).status_code


@pytest.mark.parametrize("path", SYSTEMONE)
async def test_every_spelling_of_the_path_is_the_same_route(client: httpx.AsyncClient, path: str) -> None:
    right, wrong = [await client.post(path, json=body) for body in (system_one(), {})]
    assert (200, 422) == (right.status_code, wrong.status_code)
    assert ["body", "model"] == wrong.json()["detail"][0]["loc"]
