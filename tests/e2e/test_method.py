"""What a decision may ask of its reads, on a real vLLM, held against transformers where it can be."""

from __future__ import annotations

import base64
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import pytest

from structured_server.core.reads import ANCHORS
from structured_server.core.tokens import Tokenizer
from structured_server.wire.decide_response import DecideResponse
from tests.e2e.expected import expected_answers, expected_probabilities
from tests.engine.server import Oracle
from tests.golden.requests import TRIAGE
from tests.proxy import Proxy

STATE = "The pager went off at the depot while the rollout was going on."
CHAIN = ["one", "two", "three", "four", "five"]


def _decide(proxy: Proxy, request: dict[str, Any]) -> dict[str, Any]:
    reply = proxy.decide(request)
    assert 200 == reply.status_code, reply.text
    DecideResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


def _probabilities(answer: dict[str, Any]) -> dict[str, list[float]]:
    return {
        name: list(each["probabilities"].values())
        for name, each in answer["answers"].items()
        if each["status"] != "skipped"
    }


def _assert_as_expected(
    request: dict[str, Any],
    proxy: Proxy,
    tokenizer: Tokenizer,
    oracle: Oracle,
    draws: int = 1,
) -> dict[str, Any]:
    answer = _decide(proxy, request)
    expected = expected_probabilities(request, draws, tokenizer, oracle)
    found = _probabilities(answer)
    assert expected.keys() == found.keys()
    for name, probabilities in expected.items():
        assert pytest.approx(probabilities, abs=1e-4) == found[name], name
    return answer


def _options(count: int) -> list[str]:
    """Return option names that are no single tokens."""
    letters = ascii_lowercase
    return [f"{letters[i % 26]}-{letters[i // 26 % 26]}-{i}" for i in range(count)]


def _words(count: int) -> list[str]:
    """Return option names that are single tokens: longer ones would fill the test engine's context."""
    pairs = ["".join(pair) for pair in product(ascii_uppercase, repeat=2)]
    return [*pairs, *map(str.lower, pairs)][:count]


@pytest.mark.parametrize("options", [*map(_options, (2, 26, 27, 77, 255)), _words(1000)], ids=len)
def test_a_choice_of_any_width_is_one_softmax(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle, options: list[str]
) -> None:
    question = {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(options)}
    request = {
        "state": STATE,
        "questions": {"which": question},
        "read": {"samples": 1},
        "deadline_ms": 60_000,
    }
    answer = _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle)
    aliases = answer["reading"]["aliases"].get("which", {})
    labels = {aliases.get(option, option) for option in options}
    ids = sum(len(checkpoint_tokenizer.variants(checkpoint_tokenizer.encode(label)[0])) for label in labels)
    assert max(1, -(-(ids - ANCHORS) // (128 - ANCHORS))) == answer["reading"]["reads"]
    assert "label_sets_drift" not in {warning["code"] for warning in answer["warnings"]}
    assert len(options) == len(labels)
    assert pytest.approx(1, abs=1e-9) == sum(answer["answers"]["which"]["probabilities"].values())


@pytest.mark.parametrize("count", [64, 400])
def test_many_questions_are_read_in_few_canvases(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle, count: int
) -> None:
    kinds: list[Any] = [*TRIAGE.values()]
    questions = {
        f"question {i}": {**kinds[i % len(kinds)], "instructions": f"Number {i}?"} for i in range(count)
    }
    request = {"state": STATE, "questions": questions, "read": {"samples": 1}, "deadline_ms": 120_000}
    answer = _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle)
    assert list(questions) == list(answer["answers"])
    assert answer["reading"]["reads"] <= count // 8 + 1


def test_questions_read_apart_do_not_see_each_other(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    read = {"isolate": "all", "layout": "document_first", "samples": 1}
    questions: dict[str, Any] = dict(TRIAGE)
    request = {"state": STATE, "questions": questions, "read": read}
    answer = _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle)
    name, question = next(iter(questions.items()))
    alone = _decide(proxy, {**request, "questions": {name: question}})
    assert alone["answers"][name]["probabilities"] == answer["answers"][name]["probabilities"]


@pytest.mark.parametrize(
    "read", [{}, {"template": "lines"}, {"isolate": "all"}], ids=["json", "lines", "apart"]
)
def test_a_chain_of_five_stages_goes_on_from_its_answers(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle, read: dict[str, Any]
) -> None:
    questions: dict[str, Any] = {}
    kinds: list[Any] = [*TRIAGE.values()]
    for index, name in enumerate(CHAIN):
        questions[name] = {**kinds[index % 3], "depends_on": CHAIN[:index][-1:]}
    request = {"state": STATE, "questions": questions, "read": {**read, "samples": 1}}
    answer = _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle)
    assert [[name] for name in CHAIN] == answer["reading"]["stages"]
    apart = {name: {**each, "depends_on": []} for name, each in questions.items()}
    other = _decide(proxy, {**request, "questions": apart, "read": {"isolate": "all", "samples": 1}})
    assert _probabilities(other)["five"] != _probabilities(answer)["five"]


def test_a_question_is_skipped_where_another_has_not_the_answer_that_it_waits_for(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    questions = {
        "urgent": {"type": "noul", "instructions": "Now?"},
        "yes": {"type": "noul", "instructions": "Why?", "ask_if": {"urgent": [True]}},
        "no": {"type": "noul", "instructions": "Why not?", "ask_if": {"urgent": [False]}},
    }
    request = {"state": STATE, "questions": questions, "read": {"samples": 1}}
    answer = _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle)
    urgent = answer["answers"]["urgent"]["answer"]
    skipped = answer["answers"]["no" if urgent else "yes"]
    assert ("skipped", None) == (skipped["status"], skipped["answer"])
    assert [
        {
            "code": "ask_if_not_met",
            "value": str(urgent).lower(),
            "limit": [str(not urgent).lower()],
            "question": "urgent",
        }
    ] == skipped["reasons"]


def test_orders_are_mapped_back_before_they_are_pooled(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    for criteria in (["compute", "storage", "billing"], _options(5)):
        question = {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(criteria)}
        request = {"state": STATE, "questions": {"which": question}, "read": {"samples": 3, "rotate": True}}
        answer = _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle, draws=3)
        expected = expected_answers(request, 3, checkpoint_tokenizer, oracle)["which"]
        noise = answer["answers"]["which"]["noise"]
        assert 3 == noise["orders"]
        assert pytest.approx(expected.order_spread, abs=1e-4) == noise["order_spread"]  # type: ignore[union-attr]


@pytest.mark.parametrize("steps", [2, 8])
def test_more_steps_keep_the_template(proxy: Proxy, steps: int) -> None:
    request = {"state": STATE, "questions": TRIAGE, "read": {"steps": steps, "samples": 4}}
    answer = _decide(proxy, request)
    assert set(TRIAGE) == set(answer["answers"])
    assert all(0 < each["label_mass"] <= 1 for each in answer["answers"].values())


def test_a_constrained_read_has_the_same_answers_and_no_label_mass(proxy: Proxy) -> None:
    request = {"state": STATE, "questions": TRIAGE, "read": {"samples": 1}}
    free = _decide(proxy, request)
    bound = _decide(proxy, {**request, "read": {"samples": 1, "constrained": True}})
    for name, each in bound["answers"].items():
        assert each["label_mass"] is None
        assert pytest.approx(free["answers"][name]["probabilities"], abs=1e-4) == each["probabilities"]


def test_a_temperature_divides_the_log_probabilities(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    request = {
        "state": STATE,
        "questions": TRIAGE,
        "read": {"samples": 4, "temperature": {"noul": 2.0, "score": 0.5}},
    }
    _assert_as_expected(request, proxy, checkpoint_tokenizer, oracle, draws=4)


def test_a_thought_stands_before_every_draw(proxy: Proxy) -> None:
    request = {
        "state": STATE,
        "questions": TRIAGE,
        "read": {"samples": 2, "think": 24},
        "deadline_ms": 60_000,
    }
    answer = _decide(proxy, request)
    (thought,) = answer["reading"]["thoughts"]
    assert set(TRIAGE) == set(thought["questions"])
    assert 1 <= thought["tokens"] <= 24
    assert thought["closed"] or 24 == thought["tokens"]
    assert thought["milliseconds"] > 0
    without = _decide(proxy, {**request, "read": {"samples": 2}})
    grown = answer["usage"]["engine_input_tokens"] - without["usage"]["engine_input_tokens"]
    assert grown >= 2 * thought["tokens"]
    assert _probabilities(without) != _probabilities(answer)


def test_a_text_only_engine_says_so(proxy: Proxy) -> None:
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    images = [f"data:image/png;base64,{image}"]
    reply = proxy.decide({"state": STATE, "questions": TRIAGE, "images": images})
    assert (422, ["images"]) == (reply.status_code, reply.json()["error"]["path"])


@pytest.mark.parametrize("keep", ["head", "tail", "middle"])
def test_a_long_state_is_cut_where_that_is_asked_for(proxy: Proxy, keep: str) -> None:
    request = {
        "state": "first " + "word " * 5000 + "last",
        "questions": TRIAGE,
        "read": {"samples": 1, "long_state": keep},
        "deadline_ms": 60_000,
    }
    reading = _decide(proxy, request)["reading"]
    assert 3500 < reading["state_tokens_used"] < 4096 < reading["state_tokens"]
    assert "state_truncated" in {warning["code"] for warning in _decide(proxy, request)["warnings"]}
