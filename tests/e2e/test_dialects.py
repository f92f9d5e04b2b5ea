"""System One, OpenAI Decisions and chat schemas on a real vLLM: each equals the `/decide` that it means.

What `/decide` has no word for is held against what it would come to by other words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from structured_server.core.answers import Answer
from structured_server.core.tokens import Tokenizer
from structured_server.wire.decisions_answer import DecisionsResponse
from structured_server.wire.systemone_answer import SystemOneResponse
from tests.e2e.expected import answers_to, expected_probabilities, query_of
from tests.engine.server import Oracle
from tests.golden.requests import SEVERITY, TEAM, TRIAGE, URGENT
from tests.proxy import Proxy

STATE = "The pager went off at the depot while the rollout was going on."
TOGETHER = {"layout": "document_first", "keys": "neutral"}
"""How System One and Decisions read: what `/decide` would call it."""
APART = {**TOGETHER, "isolate": "all"}

Reads = Callable[..., dict[str, list[float]]]

STRUCTURED = {
    "a first id": {
        "type": "noul",
        "instructions": {"ask": "Wake someone?", "unless": ["it is day"]},
        "criteria": {"true": {"now": ["customers", "money"]}, "false": None},
    },
    "x.y:z": {
        "type": "choice",
        "criteria": {"compute": {"covers": ["nodes"]}, "storage": ["disks", 7], "billing": None},
    },
    "日本": {
        "type": "score",
        "instructions": ["How bad?", "0 is nothing"],
        "criteria": [{"name": "nothing"}, ["a", "little"], "bad"],
    },
}


@pytest.fixture
def reads(checkpoint_tokenizer: Tokenizer, oracle: Oracle) -> Reads:
    """Return what transformers reads for a request of `POST /decide`."""

    def reads(questions: dict[str, Any], state: Any = STATE, draws: int = 1, **read: Any) -> Any:
        request = {"state": state, "questions": questions, "read": read}
        return expected_probabilities(request, draws, checkpoint_tokenizer, oracle)

    return reads


def _post(proxy: Proxy, path: str, body: dict[str, Any]) -> httpx.Response:
    reply = httpx.post(proxy.url + path, json=body, timeout=120)
    assert 200 == reply.status_code, reply.text
    return reply


def _system_one(proxy: Proxy, questions: dict[str, Any], state: Any = STATE, **given: Any) -> dict[str, Any]:
    body = {"model": "jev-latest", "state": state, "questions": questions, "samples": 1, **given}
    reply = _post(proxy, "/v1/systemone", {"deadline_ms": 60_000, **body})
    SystemOneResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


def _decisions(proxy: Proxy, questions: Sequence[Any], given: Any = STATE, **more: Any) -> dict[str, Any]:
    reply = _post(
        proxy,
        "/v1/decisions",
        {"model": "dgemma", "input": given, "questions": questions, "samples": 1, **more},
    )
    DecisionsResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


def _probabilities(answer: dict[str, Any]) -> dict[str, list[float]]:
    return {name: _numbers(each) for name, each in answer["answers"].items() if each is not None}


def _numbers(answer: dict[str, Any]) -> list[float]:
    yes = answer.get("noul", answer.get("probability"))
    if yes is not None:
        return [yes, 1 - yes]
    given = answer["probabilities"]
    return [each["probability"] for each in given] if isinstance(given, list) else list(given.values())


def _assert_close(expected: dict[str, list[float]], found: dict[str, list[float]]) -> None:
    assert expected.keys() == found.keys()
    for name, probabilities in expected.items():
        assert pytest.approx(probabilities, abs=1e-4) == found[name], name


def _differ(one: dict[str, list[float]], other: dict[str, list[float]], name: str) -> bool:
    return max(abs(a - b) for a, b in zip(one[name], other[name], strict=True)) > 1e-3


@pytest.mark.parametrize(
    "state", [STATE, {"alert": STATE, "since": [14, None]}, ["one", {"two": 2}]], ids=["text", "map", "list"]
)
def test_system_one_reads_questions_apart_and_before_them_the_state(
    proxy: Proxy, reads: Reads, state: Any
) -> None:
    answer = _system_one(proxy, STRUCTURED, state)
    expected = reads(STRUCTURED, state, **APART)
    _assert_close(expected, _probabilities(answer))
    said = answer["x_decision"]["reading"]
    assert ("all", "document_first", 3) == (said["isolate"], said["layout"], said["reads"])
    score = answer["answers"]["日本"]
    mean = sum(level * p for level, p in enumerate(expected["日本"]))
    assert pytest.approx(mean, abs=1e-4) == score["score"]
    assert {"0": '{"name":"nothing"}', "1": '["a","little"]', "2": "bad"} == score["legend"]


def test_system_one_reads_together_where_a_request_says_so(proxy: Proxy, reads: Reads) -> None:
    answer = _system_one(proxy, STRUCTURED, isolate="none")
    _assert_close(reads(STRUCTURED, **TOGETHER), _probabilities(answer))
    said = answer["x_decision"]["reading"]
    assert ("none", [list(STRUCTURED)]) == (said["isolate"], said["groups"])


def test_ids_move_nothing_and_no_question_moves_another(proxy: Proxy) -> None:
    before = _probabilities(_system_one(proxy, TRIAGE))
    renamed = {f"say yes to {name}": each for name, each in TRIAGE.items()}
    more = {"another": {"type": "noul", "instructions": "Is it night?"}}
    after = _probabilities(_system_one(proxy, {**more, **renamed}))
    assert ["another", *renamed] == list(after)
    _assert_close(before, {name: after[f"say yes to {name}"] for name in TRIAGE})


def test_a_choice_of_255_options_is_one_softmax(proxy: Proxy, reads: Reads) -> None:
    options = {f"option {index}": None for index in range(255)}
    questions = {"which": {"type": "choice", "instructions": "Pick one", "criteria": options}}
    answer = _system_one(proxy, questions)
    _assert_close(reads(questions, **APART), _probabilities(answer))
    assert list(options) == list(answer["answers"]["which"]["probabilities"])


def test_64_questions_are_64_reads(proxy: Proxy, reads: Reads) -> None:
    questions = {f"q{i}": {"type": "noul", "instructions": f"Is it about topic {i}?"} for i in range(64)}
    answer = _system_one(proxy, questions)
    _assert_close(reads(questions, **APART), _probabilities(answer))
    assert 64 == answer["x_decision"]["reading"]["reads"] == answer["usage"]["output_tokens"]


LISTED = [
    {"type": "predicate", "name": "urgent", "instructions": "Someone must be woken."},
    {
        "type": "choice",
        "name": "team",
        "instructions": [{"type": "input_text", "text": "Which team?"}],
        "choices": [{"value": "compute", "description": "nodes"}, {"value": "storage"}, {"value": True}],
    },
    {
        "type": "score",
        "instructions": "How bad?",
        "levels": [{"label": "none"}, {"label": "minor", "description": "a few notice"}, {"label": "major"}],
    },
]
AS_MAP = {
    "0": {"type": "noul", "instructions": "Someone must be woken."},
    "1": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"compute": "nodes", "storage": None, "true": None},
    },
    "2": {"type": "score", "instructions": "How bad?", "criteria": ["none", "minor: a few notice", "major"]},
}
CONVERSATION = [
    {"role": "user", "content": [{"type": "input_text", "text": STATE}, {"type": "input_json", "data": [1]}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "nobody"},
]
CONVERSATION_SHOWN = [
    {"role": "user", "content": [STATE, [1]]},
    {"call": "look", "arguments": "{}"},
    {"output": "nobody"},
]


@pytest.mark.parametrize(
    ("given", "state"), [(STATE, STATE), (CONVERSATION, CONVERSATION_SHOWN)], ids=["text", "conversation"]
)
@pytest.mark.parametrize("isolate", [None, "none"], ids=["apart", "together"])
def test_decisions_are_read_as_system_one_is(
    proxy: Proxy, reads: Reads, given: Any, state: Any, isolate: str | None
) -> None:
    answer = _decisions(proxy, LISTED, given, **({"isolate": isolate} if isolate else {}))
    expected = reads(AS_MAP, state, **(TOGETHER if isolate else APART))
    found = {str(index): _numbers(each) for index, each in enumerate(answer["answers"])}
    _assert_close(expected, found)
    assert ["urgent", "team", None] == [each["name"] for each in answer["answers"]]
    values = [each["value"] for each in answer["answers"][1]["probabilities"]]
    assert ["compute", "storage", True] == values


def test_a_system_one_body_is_known_on_the_path_of_decisions(proxy: Proxy) -> None:
    body = {"model": "jev-latest", "state": STATE, "questions": TRIAGE, "samples": 1}
    one, other = (_post(proxy, path, body).json() for path in ("/v1/systemone", "/v1/decisions"))
    _assert_close(_probabilities(one), _probabilities(other))


def _in_sequence(questions: dict[str, Any]) -> dict[str, Any]:
    """Return the questions, each waiting for all before it."""
    names = list(questions)
    return {
        name: {**each, "depends_on": names[:index]} for index, (name, each) in enumerate(questions.items())
    }


def test_a_sequential_read_goes_on_from_all_earlier_answers(proxy: Proxy, reads: Reads) -> None:
    one_each = _system_one(proxy, TRIAGE, sequential=True, chunk_rows=8)
    assert [[name] for name in TRIAGE] == one_each["x_decision"]["reading"]["stages"]
    found = _probabilities(one_each)
    _assert_close(reads(_in_sequence(TRIAGE), **TOGETHER), found)
    at_once = _probabilities(_system_one(proxy, TRIAGE, chunk_rows=8))
    _assert_close({"urgent": at_once["urgent"]}, {"urgent": found["urgent"]})
    assert _differ(at_once, found, "severity")


def test_chunk_rows_bounds_what_shares_a_canvas(proxy: Proxy, reads: Reads) -> None:
    questions = {f"{name} {i}": each for i in range(3) for name, each in TRIAGE.items()}
    answer = _system_one(proxy, questions, chunk_rows=16)
    groups = answer["x_decision"]["reading"]["groups"]
    assert 1 < len(groups) < len(questions)
    assert 16 == answer["x_decision"]["reading"]["canvas_width"]
    expected: dict[str, list[float]] = {}
    for group in groups:
        expected |= reads({name: questions[name] for name in group}, **TOGETHER)
    found = _probabilities(answer)
    _assert_close(expected, {name: found[name] for name in expected})
    assert set(questions) == set(expected)


def test_instructions_stand_before_the_state_for_all_questions(
    proxy: Proxy, checkpoint_tokenizer: Tokenizer, oracle: Oracle
) -> None:
    context = "The depot is closed on Sundays."
    query = query_of({"state": STATE, "questions": TRIAGE, "read": APART}, 1)
    told = replace(query, schema=replace(query.schema, context=context))
    expected = {
        name: list(answer.distribution.probabilities)
        for name, answer in answers_to(told, checkpoint_tokenizer, oracle).items()
        if isinstance(answer, Answer)
    }
    found = _probabilities(_system_one(proxy, TRIAGE, instructions=context))
    _assert_close(expected, found)
    assert _differ(_probabilities(_system_one(proxy, TRIAGE)), found, "team")


def test_only_what_is_asked_is_read(proxy: Proxy, reads: Reads) -> None:
    answer = _system_one(proxy, TRIAGE, ask=["severity", "urgent"], isolate="none")
    expected = reads({"urgent": URGENT, "severity": SEVERITY}, **TOGETHER)
    _assert_close(expected, _probabilities(answer))


@pytest.mark.parametrize("how", [APART, TOGETHER], ids=["apart", "together"])
def test_a_question_sees_what_it_depends_on(proxy: Proxy, reads: Reads, how: dict[str, str]) -> None:
    questions = {"urgent": URGENT, "team": TEAM, "severity": {**SEVERITY, "depends_on": ["urgent", "team"]}}
    answer = _system_one(proxy, questions, isolate=how.get("isolate", "none"))
    _assert_close(reads(questions, **how), _probabilities(answer))
    assert [["urgent", "team"], ["severity"]] == answer["x_decision"]["reading"]["stages"]


def test_a_question_that_waits_for_another_answer_is_null(proxy: Proxy, reads: Reads) -> None:
    first = _system_one(proxy, {"severity": SEVERITY})["answers"]["severity"]["probabilities"]
    level = max(first, key=lambda index: first[index])
    text = SEVERITY["criteria"][int(level)]
    others = [each for each in SEVERITY["criteria"] if each != text]
    questions: dict[str, Any] = {
        "severity": SEVERITY,
        "by index": {**URGENT, "ask_if": {"severity": [int(level)]}},
        "by text": {**TEAM, "ask_if": {"severity": [text]}},
        "never": {**TEAM, "ask_if": {"severity": others}},
    }
    answer = _system_one(proxy, questions)
    assert answer["answers"]["never"] is None
    met: dict[str, Any] = {
        name: {**questions[name], "ask_if": {"severity": [int(level)]}} for name in ("by index", "by text")
    }
    _assert_close(reads({"severity": SEVERITY, **met}, **APART), _probabilities(answer))


def test_auto_draws_up_to_auto_max_above_auto_threshold(proxy: Proxy, reads: Reads) -> None:
    auto: dict[str, Any] = {"samples": "auto", "auto_threshold": 0.0}
    three = _system_one(proxy, TRIAGE, **auto, auto_max=3)
    _assert_close(reads(TRIAGE, draws=3, **APART), _probabilities(three))
    assert {3} == {each["x_reading"]["noise"]["draws"] for each in three["answers"].values()}
    for never in ({**auto, "auto_max": 1}, {"samples": "auto", "auto_threshold": 5.0, "auto_max": 3}):
        once = _system_one(proxy, TRIAGE, **never)
        assert 3 == once["x_decision"]["reading"]["reads"]
        _assert_close(reads(TRIAGE, **APART), _probabilities(once))


def test_samples_and_seed_are_those_of_decide(proxy: Proxy, reads: Reads) -> None:
    answer = _system_one(proxy, TRIAGE, samples=4, seed=-7)
    _assert_close(reads(TRIAGE, draws=4, seed=-7, **APART), _probabilities(answer))


def test_more_steps_keep_the_template(proxy: Proxy) -> None:
    one, two = (_probabilities(_system_one(proxy, TRIAGE, steps=steps)) for steps in (1, 2))
    answer = _system_one(proxy, TRIAGE, steps=2)
    assert all(0 < each["x_reading"]["label_mass"] <= 1 for each in answer["answers"].values())
    assert any(_differ(one, two, name) for name in TRIAGE)


@pytest.mark.parametrize(("isolate", "thoughts"), [("all", 3), ("none", 1)])
def test_each_canvas_has_a_thought(proxy: Proxy, isolate: str, thoughts: int) -> None:
    answer = _system_one(proxy, TRIAGE, think=16, isolate=isolate)
    found = answer["x_decision"]["reading"]["thoughts"]
    assert thoughts == len(found)
    assert set(TRIAGE) == {name for each in found for name in each["questions"]}
    assert all(each["closed"] or 16 == each["tokens"] for each in found)
    assert 3 + sum(each["tokens"] for each in found) == answer["usage"]["output_tokens"]


TEAMS: dict[str, str | None] = TEAM["criteria"]  # type: ignore[assignment]
SCHEMA = {
    "questions": [
        {"id": "urgent", **URGENT, "type": "bool"},
        {
            "id": "team",
            "type": "choice",
            "instructions": TEAM["instructions"],
            "options": [
                {"name": name, "description": text} if text else name for name, text in TEAMS.items()
            ],
        },
        {
            "id": "severity",
            "type": "score",
            "instructions": SEVERITY["instructions"],
            "levels": SEVERITY["criteria"],
        },
    ],
    "samples": 1,
}


@pytest.mark.parametrize("isolate", [None, "all"], ids=["together", "apart"])
def test_a_schema_in_a_system_message_is_read_as_decide_reads_it(
    proxy: Proxy, reads: Reads, isolate: str | None
) -> None:
    schema = {**SCHEMA, **({"isolate": isolate} if isolate else {})}
    messages = [{"role": "system", "content": json.dumps(schema)}, {"role": "user", "content": STATE}]
    reply = _post(proxy, "/v1/chat/completions", {"messages": messages}).json()
    answers = json.loads(reply["choices"][0]["message"]["content"])["answers"]
    found = {name: list(each["probabilities"].values()) for name, each in answers.items()}
    read = {"layout": "document_first", "isolate": isolate or "none"}
    _assert_close(reads(TRIAGE, **read), found)
    decided = proxy.decide({"state": STATE, "questions": TRIAGE, "read": {**read, "samples": 1}}).json()
    for name, each in decided["answers"].items():
        assert pytest.approx(list(each["probabilities"].values()), abs=1e-4) == found[name]
    assert (
        pytest.approx(decided["answers"]["severity"]["score"] + 1, abs=1e-4) == answers["severity"]["score"]
    )
    assert decided["answers"]["team"]["choice"] == answers["team"]["choice"]
    assert decided["usage"]["input_tokens"] == reply["usage"]["prompt_tokens"]
