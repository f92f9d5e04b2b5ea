"""Decisions all the way: a client, the server's process, a real vLLM, and transformers as the judge."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from structured_server.core.tokens import Tokenizer
from structured_server.wire.decide_response import DecideResponse
from tests.e2e.expected import expected_probabilities
from tests.engine.server import SLIDING_WINDOW, Engine, Oracle
from tests.golden.requests import LONG_NAMES, TRIAGE
from tests.proxy import Proxy

EXAMPLE = Path(__file__).parents[2] / "examples" / "incident_triage"
QUESTIONS = yaml.safe_load((EXAMPLE / "questions.yaml").read_text())
INCIDENTS = yaml.safe_load((EXAMPLE / "incidents.yaml").read_text())

SHORT = "502s."
LONG = "The pager went off again at the depot while the rollout was going on. " * 12


def _probabilities(answer: dict[str, Any]) -> dict[str, list[float]]:
    return {name: list(each["probabilities"].values()) for name, each in answer["answers"].items()}


def _assert_close(expected: dict[str, list[float]], found: dict[str, list[float]], within: float) -> None:
    assert expected.keys() == found.keys()
    for name, probabilities in expected.items():
        assert pytest.approx(probabilities, abs=within) == found[name], name


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident["id"])
def test_the_incidents_are_decided_in_one_16_token_canvas(proxy: Proxy, incident: dict[str, Any]) -> None:
    state = {"alert": incident["title"], "detail": incident["text"]}
    reply = proxy.decide({"state": state, "questions": QUESTIONS})
    assert 200 == reply.status_code
    answer = reply.json()
    DecideResponse.model_validate_json(reply.content)
    assert ["urgent", "team", "severity"] == list(answer["answers"])
    assert 16 == answer["reading"]["canvas_width"]
    for each in answer["answers"].values():
        assert pytest.approx(1, abs=1e-9) == sum(each["probabilities"].values())


@pytest.mark.parametrize(
    ("state", "side"), [(SHORT, "inside"), (LONG, "past")], ids=["inside the window", "past the window"]
)
@pytest.mark.parametrize(
    "read",
    [
        {},
        {"template": "lines"},
        {"layout": "document_first", "isolate": "all"},
        {"keys": "neutral", "seed": 7},
    ],
    ids=["json", "lines", "apart", "neutral"],
)
@pytest.mark.parametrize("draws", [1, 4])
def test_a_decision_is_what_transformers_reads(
    proxy: Proxy,
    checkpoint_tokenizer: Tokenizer,
    oracle: Oracle,
    state: str,
    side: str,
    read: dict[str, Any],
    draws: int,
) -> None:
    questions = TRIAGE if side == "past" else {"urgent": {"type": "noul", "instructions": "?"}}
    request = {"state": state, "questions": questions, "read": {**read, "samples": draws}}
    answer = proxy.decide(request).json()
    prompt = answer["usage"]["engine_input_tokens"] / answer["reading"]["reads"]
    assert (prompt + answer["reading"]["canvas_width"] > SLIDING_WINDOW) == (side == "past")
    expected = expected_probabilities(request, draws, checkpoint_tokenizer, oracle)
    _assert_close(expected, _probabilities(answer), within=1e-4)


def test_aliased_options_are_what_transformers_reads(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    request = {"state": SHORT, "questions": {"queue": LONG_NAMES}, "read": {"samples": 1}}
    answer = proxy.decide(request).json()
    assert {"A", "B", "C"} == set(answer["reading"]["aliases"]["queue"].values())
    expected = expected_probabilities(request, 1, checkpoint_tokenizer, oracle)
    _assert_close(expected, _probabilities(answer), within=1e-4)


def test_an_uncertain_question_makes_three_more_reads(proxy: Proxy) -> None:
    request = {"state": SHORT, "questions": TRIAGE, "read": {"entropy_threshold": 0.0}}
    answer = proxy.decide(request).json()
    assert (4, True) == (answer["reading"]["reads"], answer["reading"]["extended"])
    assert {4} == {each["noise"]["draws"] for each in answer["answers"].values()}
    certain = proxy.decide({**request, "read": {"entropy_threshold": 5.0}}).json()
    assert (1, False) == (certain["reading"]["reads"], certain["reading"]["extended"])


def test_identical_requests_get_identical_answers(proxy: Proxy) -> None:
    request = {"state": LONG, "questions": TRIAGE}
    first, second = (proxy.decide(request).json() for _ in range(2))
    _assert_close(_probabilities(first), _probabilities(second), within=1e-4)
    assert first["provenance"] == second["provenance"]


def test_decisions_at_once_are_those_made_alone(proxy: Proxy) -> None:
    requests = [
        {"state": f"{SHORT} {index}", "questions": TRIAGE, "read": {"samples": 1}} for index in range(24)
    ]
    alone = [_probabilities(proxy.decide(request).json()) for request in requests]
    with ThreadPoolExecutor(24) as threads:
        replies = list(threads.map(proxy.decide, requests))
    assert {200} == {reply.status_code for reply in replies}
    for expected, reply in zip(alone, replies, strict=True):
        _assert_close(expected, _probabilities(reply.json()), within=1e-4)


def test_the_chat_route_reads_what_the_id_route_reads(
    engine: Engine, start_proxy: Callable[..., Proxy]
) -> None:
    ids = start_proxy(engine.url, ["--scaffold", "canvas"])
    chat = start_proxy(engine.url, ["--scaffold", "canvas", "--prompt-transport", "chat"])
    for proxy in (ids, chat):
        proxy.wait_until_ready()
    request = {"state": "Ünïcode 502s, “quoted”", "questions": TRIAGE, "read": {"samples": 1}}
    answers = [proxy.decide(request).json() for proxy in (ids, chat)]
    assert answers[0]["usage"]["engine_input_tokens"] == answers[1]["usage"]["engine_input_tokens"]
    _assert_close(_probabilities(answers[0]), _probabilities(answers[1]), within=1e-4)


def test_a_state_beyond_the_context_is_refused_with_the_numbers(proxy: Proxy) -> None:
    reply = proxy.decide({"state": "word " * 5000, "questions": TRIAGE})
    assert (413, "state_too_long") == (reply.status_code, reply.json()["error"]["code"])
    assert "4096" in reply.json()["error"]["hint"]


def test_a_state_that_just_fits_is_read(proxy: Proxy) -> None:
    request = {"state": "", "questions": TRIAGE, "read": {"samples": 1}}
    empty = proxy.decide(request).json()["usage"]["engine_input_tokens"]
    one = proxy.decide({**request, "state": "a b"}).json()["usage"]["engine_input_tokens"]
    each = one - empty - 1
    words = (4096 - 16 - empty - 1) // each
    fits = proxy.decide({**request, "state": "a" + " b" * words})
    assert 200 == fits.status_code
    over = proxy.decide({**request, "state": "a" + " b" * (words + 1)})
    assert 413 == over.status_code
