"""What goes over the wire and no SDK would send, or would show."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typesafe_sdk import TypeSafeAPIError, TypeSafeClient, TypeSafeUnprocessableEntityError

from tests.conformance.asked import GREETING, STATE, body, body_with

PATH = "/v1/systemone"
KNOWN_FIELDS = {
    "noul": {"type", "noul"},
    "choice": {"type", "choice", "probabilities", "confidence"},
    "score": {"type", "score", "legend", "probabilities", "confidence"},
}
THREE_RAW = {
    "noul": {"type": "noul", "instructions": "Urgent?"},
    "choice": {"type": "choice", "criteria": {"a": None, "b": None}},
    "score": {"type": "score", "criteria": ["little", "much"]},
}
NOT_BODIES = {"no JSON": b"{nope", "nothing": b"", "array": b"[1]", "null": b"null"}
REFUSED = {
    "no state": body(state=...),
    "state null": body(state=None),
    "state number": body(state=5),
    "no questions": body(questions=...),
    "questions empty": body(questions={}),
    "questions array": body(questions=[{"type": "noul", "instructions": "Urgent?"}]),
    "question without type": body_with({"instructions": "x"}),
    "question of unknown type": body_with({"type": "boolean", "instructions": "x"}),
    "choice without criteria": body_with({"type": "choice", "instructions": "x"}),
    "choice of nothing": body_with({"type": "choice", "criteria": {}}),
    "choice from an array": body_with({"type": "choice", "criteria": ["a", "b"]}),
    "score from an object": body_with({"type": "score", "criteria": {"0": "a", "1": "b"}}),
    "score of nothing": body_with({"type": "score", "criteria": []}),
    "noul with text as criteria": body_with({"type": "noul", "instructions": "x", "criteria": "y"}),
}
DOUBTFUL = {
    "300 options": json.dumps(body_with({"type": "choice", "criteria": dict.fromkeys(map(str, range(300)))})),
    "lone surrogate": json.dumps(body(state="HERE")).replace("HERE", r"\ud800"),
    "no UTF-8": json.dumps(body(state="HERE")).encode().replace(b"HERE", b"\xff\xfe"),
    "3000 arrays deep": json.dumps(body(state="HERE")).replace('"HERE"', "[" * 3000 + "]" * 3000),
}


@pytest.mark.parametrize("content", NOT_BODIES.values(), ids=NOT_BODIES)
def test_what_is_no_body_is_refused(http: httpx.Client, content: bytes) -> None:
    _assert_refused(http.post(PATH, content=content))


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
def test_a_body_that_breaks_the_contract_is_refused(http: httpx.Client, wrong: dict[str, Any]) -> None:
    _assert_refused(http.post(PATH, json=wrong))


@pytest.mark.parametrize("content", DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_body_on_the_edge_is_answered_or_refused(http: httpx.Client, content: str | bytes) -> None:
    reply = http.post(PATH, content=content)
    if reply.status_code != 200:
        _assert_refused(reply)


def test_what_is_wrong_with_a_body_stands_in_a_list_by_its_place(http: httpx.Client) -> None:
    reply = http.post(PATH, json=body(state=...))
    assert 422 == reply.status_code
    found = reply.json()["detail"]
    assert found
    for each in found:
        assert "body" == each["loc"][0]
        assert {"loc", "msg", "type"} <= each.keys()


def test_the_sdk_says_where_a_question_is_wrong(sdk: TypeSafeClient) -> None:
    unknown: Any = {"type": "nope", "instructions": "x"}
    with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.q"):
        sdk.system_one(STATE, {"q": unknown})


def test_an_unknown_path_is_404_in_json(http: httpx.Client) -> None:
    reply = http.get("/v1/nothing")
    assert 404 == reply.status_code
    assert "json" in reply.headers["content-type"]
    assert reply.json()["detail"]


def test_the_questions_path_cannot_be_read(http: httpx.Client) -> None:
    reply = http.get(PATH)
    assert reply.status_code in (404, 405)
    assert reply.json()["detail"]


def test_an_unknown_model_is_refused_in_json(sdk: TypeSafeClient) -> None:
    with pytest.raises(TypeSafeAPIError) as refused:
        sdk.system_one("hi", GREETING, model="no-such-model")
    assert refused.value.status in (400, 404, 422)
    assert {"error_type", "message"} == set(refused.value.body["detail"])


@pytest.mark.parametrize("said", ["application/json", "application/json; charset=utf-8"])
def test_json_is_taken_with_and_without_a_charset_and_answered_as_json(http: httpx.Client, said: str) -> None:
    reply = http.post(PATH, json=body(), headers={"content-type": said})
    assert 200 == reply.status_code
    assert reply.headers["content-type"].startswith("application/json")


def test_json_is_taken_without_a_content_type(http: httpx.Client) -> None:
    request = http.build_request("POST", PATH, content=json.dumps(body()))
    del request.headers["content-type"]
    assert 200 == http.send(request).status_code


def test_what_the_format_does_not_know_is_prefixed(http: httpx.Client) -> None:
    answered = http.post(PATH, json=body(state=STATE, questions=THREE_RAW)).json()
    assert {"model", "answers", "usage"} == _unprefixed(answered)
    for kind, answer in answered["answers"].items():
        assert KNOWN_FIELDS[kind] == _unprefixed(answer)


def test_an_answer_holds_no_number_that_json_does_not_know(http: httpx.Client) -> None:
    reply = http.post(PATH, json=body(state=STATE, questions=THREE_RAW))
    foreign: list[str] = []
    json.loads(reply.text, parse_constant=foreign.append)
    assert [] == foreign


def test_a_body_in_any_order_without_the_sdks_headers_is_answered_and_numbered(http: httpx.Client) -> None:
    questions = {"person": {"instructions": "Is a person wanted?", "type": "noul"}}
    backwards = dict(reversed(body(state="agent please", questions=questions).items()))
    reply = http.post(PATH, json=backwards)
    assert 200 == reply.status_code
    assert reply.headers["x-request-id"]


def _assert_refused(reply: httpx.Response) -> None:
    assert 400 <= reply.status_code < 500
    assert reply.json()["detail"]


def _unprefixed(fields: dict[str, Any]) -> set[str]:
    return {name for name in fields if not name.startswith("x_")}
