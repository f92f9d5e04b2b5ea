"""OpenAI's Decisions over HTTP: its inputs, its questions, its errors; and System One bodies on its path."""

from __future__ import annotations

import random
from typing import Any

import httpx
import pytest

from structured_server.api.paths import DECISIONS as PATHS
from tests.api.asking import (
    DECISIONS,
    PREDICATE,
    SYSTEM_ONE,
    answered,
    believing,
    decided,
    decisions,
    prompts,
    system_one,
)
from tests.api.conftest import Start, serving
from tests.fake_backend import FakeBackend
from tests.golden.record import Recorder
from tests.toy import ToyTokenizer

TEAM = {
    "type": "choice",
    "name": "team",
    "instructions": "Whose is it?",
    "choices": [{"value": "networking", "description": "WAF"}, {"value": "billing"}],
}
SEVERITY = {
    "type": "score",
    "name": "severity",
    "instructions": "How bad?",
    "levels": [{"label": "none"}, {"label": "low", "description": "a nuisance"}, {"label": "high"}],
}
ALL: tuple[dict[str, Any], ...] = (PREDICATE, TEAM, SEVERITY)


async def test_answers_come_in_the_order_of_the_questions_with_their_names(client: httpx.AsyncClient) -> None:
    answer = await decided(client, decisions(*ALL, TEAM))
    assert [None, "team", "severity", "team"] == [each["name"] for each in answer["answers"]]
    assert ["predicate", "choice", "score", "choice"] == [each["type"] for each in answer["answers"]]
    predicate, team, severity, again = answer["answers"]
    assert 0 <= predicate["probability"] <= 1
    assert ["networking", "billing"] == [each["value"] for each in team["probabilities"]]
    assert [0, 1, 2] == [each["value"] for each in severity["probabilities"]]
    assert ["none", "low", "high"] == [each["label"] for each in severity["probabilities"]]
    shares = [each["probability"] for each in severity["probabilities"]]
    assert shares[1] + 2 * shares[2] == pytest.approx(severity["score"], abs=1e-12)
    top = max(team["probabilities"], key=lambda each: each["probability"])
    assert (top["value"], 2 * top["probability"] - 1) == (team["choice"], pytest.approx(team["confidence"]))
    assert team["probabilities"] == again["probabilities"]


async def test_numbers_are_those_of_system_one_and_of_decide(start: Start) -> None:
    """A level is shown with its description, so that stands in the level there."""
    criteria = {"networking": "WAF", "billing": None}
    same = {
        "0": {"type": "noul", "instructions": "Somebody must wake."},
        "1": {"type": "choice", "instructions": "Whose is it?", "criteria": criteria},
        "2": {
            "type": "score",
            "instructions": "How bad?",
            "criteria": ["none", "low: a nuisance", "high"],
        },
    }
    recorder = Recorder()
    async with start(recorder) as client:
        answer = await decided(client, decisions(*ALL))
        sent = sorted(recorder.bodies)
        recorder.bodies.clear()
        other = await answered(client, system_one(same))
        assert sent == sorted(recorder.bodies)
        recorder.bodies.clear()
        read = {"isolate": "all", "layout": "document_first", "keys": "neutral"}
        await client.post("/decide", json={"state": "502 spike", "questions": same, "read": read})
        assert sent == sorted(recorder.bodies)
    predicate, team, severity = answer["answers"]
    assert other["answers"]["0"]["noul"] == predicate["probability"]
    for ours, theirs in ((team, "1"), (severity, "2")):
        shares = [each["probability"] for each in ours["probabilities"]]
        assert list(other["answers"][theirs]["probabilities"].values()) == shares
        assert other["answers"][theirs]["confidence"] == ours["confidence"]
    for field in ("question_set", "fingerprint"):
        assert other["x_decision"]["provenance"][field] == answer["x_decision"]["provenance"][field]


@pytest.mark.parametrize("names", [("first", "second", "third"), (None, None, None), ("x", "x", "x")])
async def test_names_never_reach_the_model(start: Start, names: tuple[str | None, ...]) -> None:
    sent = []
    for named in (("one", "two", "three"), names):
        recorder = Recorder()
        async with start(recorder) as client:
            asked = [each | {"name": name} for each, name in zip(ALL, named, strict=True)]
            for extra in ({}, {"isolate": "none"}):
                answer = await decided(client, decisions(*asked, **extra))
                assert list(named) == [each["name"] for each in answer["answers"]]
        sent.append(sorted(recorder.bodies))
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ("502 spike", "502 spike"),
        ([{"role": "user", "content": "502 spike"}], "502 spike"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "502 spike"}]}], "502 spike"),
        ([{"role": "user", "content": [{"type": "input_json", "data": {"a": [1, None]}}]}], '{"a":[1,null]}'),
        (
            [{"role": "user", "content": [{"type": "input_json", "data": 7}]}],
            '[{"role":"user","content":7}]',
        ),
        (
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "Refund me."},
                        {"type": "input_json", "data": {"plan": "pro"}},
                    ],
                }
            ],
            '["Refund me.",{"plan":"pro"}]',
        ),
        (
            [
                {"role": "system", "content": "Be kind."},
                {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
                {"role": "user", "content": "Ärger"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Yes?"}]},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
                {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"id":1}'},
                {"type": "function_call_output", "call_id": "1", "output": "found"},
                {"type": "custom_tool_call", "call_id": "2", "name": "run", "input": "ls"},
                {
                    "type": "custom_tool_call_output",
                    "call_id": "2",
                    "output": [{"type": "input_text", "text": "a.txt"}],
                },
            ],
            '[{"role":"system","content":"Be kind."},{"role":"developer","content":"Be brief."},'
            '{"role":"user","content":"Ärger"},{"role":"assistant","content":"Yes?"},'
            '{"role":"assistant","content":{"refusal":"No."}},{"call":"look","arguments":"{\\"id\\":1}"},'
            '{"output":"found"},{"call":"run","input":"ls"},{"output":"a.txt"}]',
        ),
    ],
)
async def test_every_kind_of_input_is_shown(start: Start, given: Any, state: str) -> None:
    backend = FakeBackend()
    async with start(backend) as client:
        await decided(client, decisions(input=given, samples=1))
    (segments,) = {request.prompt.segments for batch in backend.batches for request in batch}
    assert [state] == [segment.text for segment in segments if segment.kind.name == "STATE"]


# Values and levels


async def test_text_and_a_boolean_that_read_the_same_are_different_values(start: Start) -> None:
    backend = FakeBackend()
    choices = [{"value": "true"}, {"value": True}, {"value": False}, {"value": "no"}]
    async with start(backend) as client:
        asked = {"type": "choice", "instructions": "Which?", "choices": choices}
        (answer,) = (await decided(client, decisions(asked, samples=1)))["answers"]
    values = [each["value"] for each in answer["probabilities"]]
    assert ["true", True, False, "no"] == values
    assert [str, bool, bool, str] == list(map(type, values))
    (text,) = prompts(backend)
    assert all(f": {said}\n" in text for said in ('"true"', "true", "false", '"no"'))


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("no", False)])
async def test_booleans_by_themselves_are_words(word: str, value: bool) -> None:
    """Their words are tokens here, so no letters stand for them."""
    tokenizer = ToyTokenizer(["true", "false"])
    backend = FakeBackend(logprob=lambda _request, token, _at: -0.01 if token == 16 + 2 * (not value) else -9)
    async with serving(backend, tokenizer) as client:
        asked = {
            "type": "choice",
            "instructions": f"{word}?",
            "choices": [{"value": v} for v in (True, False)],
        }
        answer = await decided(client, decisions(asked, samples=1))
    assert value is answer["answers"][0]["choice"]
    assert {} == answer["x_decision"]["reading"]["aliases"]


async def test_descriptions_stand_in_the_prompt(start: Start) -> None:
    backend = FakeBackend()
    async with start(backend) as client:
        answer = await decided(client, decisions(TEAM, SEVERITY, samples=1))
    text = "\n".join(prompts(backend))
    assert "- networking: WAF" in text
    assert "low: a nuisance" in text
    assert "low" == answer["answers"][1]["probabilities"][1]["label"]


@pytest.mark.parametrize("count", [2, 27, 255])
async def test_a_choice_may_have_many_values(count: int) -> None:
    pairs = [first + second for first in "ABCDEFGHIJKLM" for second in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    values = [f"queue number {index}" for index in range(count)]
    asked = {"type": "choice", "instructions": "Which?", "choices": [{"value": each} for each in values]}
    async with serving(FakeBackend(max_model_len=None), ToyTokenizer(pairs)) as client:
        (answer,) = (await decided(client, decisions(asked, samples=1)))["answers"]
    assert values == [each["value"] for each in answer["probabilities"]]
    assert answer["choice"] in values


@pytest.mark.parametrize("seed", range(4))
async def test_every_form_of_question_is_answered_in_the_documented_shape(seed: int) -> None:
    random_ = random.Random(seed)
    texts: list[Any] = [
        "Is it?",
        [{"type": "input_text", "text": "Is it?"}, {"type": "input_json", "data": {}}],
    ]
    said: list[dict[str, Any]] = [{}, {"description": None}, {"description": "x"}]
    words: list[Any] = ["networking", "billing", "true", True, False, "ÄÖ", " x ", *map(str, range(12))]
    async with serving(FakeBackend()) as client:
        for _ in range(15):
            asked: list[dict[str, Any]] = []
            for _ in range(random_.randint(1, 6)):
                kind = random_.choice(["predicate", "choice", "score"])
                question = {"type": kind, "instructions": random_.choice(texts), "user": 3}
                if random_.random() < 0.7:
                    question["name"] = random_.choice(["a", "a", "", "Ü \n", None])
                given = random_.sample(words, random_.randint(2, 8))
                described: list[dict[str, Any]] = [random_.choice(said) for _ in given]
                if kind == "choice":
                    question["choices"] = [{"value": v} | d for v, d in zip(given, described, strict=True)]
                if kind == "score":
                    given = list(dict.fromkeys(str(each).lower() for each in given))
                    question["levels"] = [{"label": v} | d for v, d in zip(given, described, strict=False)]
                asked.append(question)
            asked = [each for each in asked if len(each.get("levels", "xx")) > 1] or [PREDICATE]
            answer = await decided(client, decisions(*asked))
            for question, got in zip(asked, answer["answers"], strict=True):
                assert (question["type"], question.get("name")) == (got["type"], got["name"])
                if question["type"] == "choice":
                    expected = [each["value"] for each in question["choices"]]
                    assert expected == [each["value"] for each in got["probabilities"]]


# How they are read


@pytest.mark.parametrize(
    ("settings", "fields", "isolate"),
    [({}, {}, "all"), ({"joint_reads": True}, {}, "none"), ({}, {"isolate": "none"}, "none")],
)
async def test_questions_are_read_apart_unless_it_is_asked_otherwise(
    start: Start, settings: dict[str, Any], fields: dict[str, Any], isolate: str
) -> None:
    async with start(**settings) as client:
        reading = (await decided(client, decisions(*ALL, **fields)))["x_decision"]["reading"]
    assert (isolate, "document_first") == (reading["isolate"], reading["layout"])
    assert (3 if isolate == "all" else 1) == len(reading["groups"])


async def test_the_reading_extensions_are_understood(start: Start) -> None:
    backend = FakeBackend(max_steps=8, logprob=believing("yes", "networking", "low"))
    async with start(backend) as client:
        answer = await decided(client, decisions(*ALL, samples=2, steps=3, chunk_rows=64, sequential=True))
    assert {3} == {request.steps for batch in backend.batches for request in batch}
    assert {2} == {each["x_reading"]["noise"]["draws"] for each in answer["answers"]}
    assert "none" == answer["x_decision"]["reading"]["isolate"]


async def test_usage_has_openais_fields_and_adds_up(client: httpx.AsyncClient) -> None:
    usage = (await decided(client, decisions(*ALL)))["usage"]
    assert 3 == usage["output_tokens"]
    assert usage["input_tokens"] + 3 == usage["total_tokens"]
    assert {"cached_tokens": 0, "cache_write_tokens": 0} == usage["input_tokens_details"]
    assert {"reasoning_tokens": 0} == usage["output_tokens_details"]


# System One bodies


@pytest.mark.parametrize("path", PATHS)
async def test_a_system_one_body_is_answered_as_one_on_every_path(
    client: httpx.AsyncClient, path: str
) -> None:
    reply, own = [await client.post(each, json=system_one()) for each in (path, SYSTEM_ONE)]
    assert 200 == reply.status_code
    assert own.json()["answers"] == reply.json()["answers"]
    assert 200 == (await client.post(path, json=decisions())).status_code


@pytest.mark.parametrize(
    "body",
    [
        {"state": "x"},
        {"questions": {"a": {"type": "noul"}}},
        {"input": "x", "questions": {}},
        system_one(state=3),
        system_one(model="gpt-9"),
    ],
)
async def test_errors_follow_the_format_of_the_body(client: httpx.AsyncClient, body: Any) -> None:
    reply = await client.post(DECISIONS, json=body)
    assert (404 if body.get("model") == "gpt-9" else 422) == reply.status_code
    assert {"detail"} == reply.json().keys()


# What is refused


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({}, "model"),
        (decisions(model=None), "model"),
        (decisions(input=None), "input"),
        (decisions(input=4), "input"),
        (decisions(input=[4]), "input.0"),
        (decisions(input=[{"type": "reasoning"}]), "input.0.type"),
        (decisions(input=[{"role": "robot", "content": "x"}]), "input.0.role"),
        (decisions(input=[{"role": "user"}]), "input.0.content"),
        (decisions(input=[{"role": "user", "content": {}}]), "input.0.content"),
        (decisions(input=[{"role": "user", "content": [{"type": "x"}]}]), "input.0.content.0.type"),
        (decisions(input=[{"role": "user", "content": [{"text": "x"}]}]), "input.0.content.0.type"),
        (
            decisions(input=[{"role": "user", "content": [{"type": "input_text"}]}]),
            "input.0.content.0.text",
        ),
        (
            decisions(input=[{"role": "user", "content": [{"type": "refusal", "refusal": 3}]}]),
            "input.0.content.0.refusal",
        ),
        (
            decisions(input=[{"type": "function_call_output", "output": [{"type": "input_text"}]}]),
            "input.0.output.0.text",
        ),
        (decisions(input=[{"type": "function_call", "name": "x"}]), "input.0.arguments"),
        (decisions() | {"questions": []}, "questions"),
        (decisions() | {"questions": "x"}, "questions"),
        (decisions({"instructions": "x"}), "questions.0.type"),
        (decisions({"type": "noul", "instructions": "x"}), "questions.0.type"),
        (decisions(PREDICATE, {"type": "predicate"}), "questions.1.instructions"),
        (decisions({"type": "predicate", "instructions": " "}), "questions.0.instructions"),
        (decisions({"type": "predicate", "instructions": 3}), "questions.0.instructions"),
        (
            decisions({"type": "predicate", "instructions": [{"type": "x"}]}),
            "questions.0.instructions.0.type",
        ),
        (decisions(TEAM | {"name": 3}), "questions.0.name"),
        (decisions(TEAM | {"choices": {"a": "b"}}), "questions.0.choices"),
        (decisions(TEAM | {"choices": [{"value": "x"}]}), "questions.0.choices"),
        (decisions(TEAM | {"choices": [{"value": "x"}] * 2}), "questions.0.choices"),
        (decisions(TEAM | {"choices": [{"value": True}] * 2}), "questions.0.choices"),
        (decisions(TEAM | {"choices": [{"value": 3}, {"value": 4}]}), "questions.0.choices.0.value"),
        (decisions(TEAM | {"choices": [{"value": "x"}, {}]}), "questions.0.choices.1.value"),
        (decisions(TEAM | {"choices": [{"value": "x"}, "y"]}), "questions.0.choices.1"),
        (decisions(SEVERITY | {"levels": [{"label": "x"}]}), "questions.0.levels"),
        (decisions(SEVERITY | {"levels": [{"label": "x"}, {"label": " "}]}), "questions.0.levels.1"),
        (decisions(SEVERITY | {"levels": ["x", "y"]}), "questions.0.levels.0"),
        (decisions(samples=0), "samples"),
        (decisions(deadline_ms="x"), "deadline_ms"),
    ],
)
async def test_what_is_wrong_is_a_parameter_in_openais_envelope(
    client: httpx.AsyncClient, body: Any, param: str | None
) -> None:
    reply = await client.post(DECISIONS, json=body)
    assert 400 == reply.status_code, reply.text
    error = reply.json()["error"]
    assert {"message", "type", "param", "code"} == error.keys()
    assert ("invalid_request_error", param) == (error["type"], error["param"])
    assert "noul" not in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000, b'{"state": "\\ud800"}', b'"x"'])
async def test_what_is_no_json_is_refused_in_openais_envelope(client: httpx.AsyncClient, body: bytes) -> None:
    reply = await client.post(DECISIONS, content=body)
    assert (400, {"error"}) == (reply.status_code, set(reply.json()))


async def test_another_model_is_not_found(client: httpx.AsyncClient) -> None:
    reply = await client.post(DECISIONS, json=decisions(model="gpt-9"))
    assert (404, "model_not_found") == (reply.status_code, reply.json()["error"]["code"])
    assert "model" == reply.json()["error"]["param"]


async def test_a_message_holds_nothing_of_the_input_or_of_the_questions(client: httpx.AsyncClient) -> None:
    for body in (
        decisions(TEAM | {"choices": [{"value": "swordfish"}] * 2}, input="swordfish"),
        decisions(SEVERITY | {"levels": [{"label": "swordfish"}] * 2}),
        decisions(input=[{"role": "swordfish", "content": "swordfish"}]),
        decisions(input=[{"role": "user", "content": [{"type": "swordfish"}]}]),
        decisions({"type": "swordfish", "instructions": "swordfish"}),
    ):
        reply = await client.post(DECISIONS, json=body)
        assert 400 == reply.status_code
        assert "swordfish" not in reply.text
