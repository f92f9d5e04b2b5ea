"""What stands around reads, before a real vLLM: batches, shared reads, limits, fitted policies, lint."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.server import Engine
from tests.golden.requests import TRIAGE
from tests.proxy import Proxy

STATES = ["The pager went off at the depot.", {"alert": "disk at 71 %"}, "502s."]


def _post(proxy: Proxy, path: str, body: dict[str, Any]) -> httpx.Response:
    reply = httpx.post(proxy.url + path, json=body, timeout=60)
    assert 200 == reply.status_code, reply.text
    return reply


def _numbers(decision: dict[str, Any]) -> list[float]:
    return [p for each in decision["answers"].values() for p in each["probabilities"].values()]


def test_a_batch_answers_what_its_states_get_alone(proxy: Proxy) -> None:
    body = {"questions": TRIAGE, "read": {"samples": 1}, "items": [{"state": state} for state in STATES]}
    header, *lines, end = (json.loads(line) for line in _post(proxy, "/decide/batch", body).text.splitlines())
    assert {"done": True, "ok": 3, "failed": 0} == end
    decisions = [line["decision"] for line in lines if "decision" in line]
    for state, decision in zip(STATES, decisions, strict=True):
        alone = _post(proxy, "/decide", {"state": state, "questions": TRIAGE, "read": {"samples": 1}}).json()
        assert pytest.approx(_numbers(alone), abs=1e-4) == _numbers(decision)
        assert header["fingerprint"] == alone["provenance"]["fingerprint"]


def test_equal_requests_in_flight_share_their_reads(proxy: Proxy) -> None:
    request = {"state": STATES[0], "questions": TRIAGE, "read": {"samples": 8, "seed": 77}}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: proxy.decide(request).json(), range(4)))
    assert 1 <= sum(answer["reading"]["shared"] for answer in answers) <= 3
    assert all(_numbers(answers[0]) == _numbers(answer) for answer in answers if answer["reading"]["shared"])


def test_more_draws_stop_at_the_limit_of_reads(proxy: Proxy) -> None:
    read = {"isolate": "all", "entropy_threshold": 0.0, "max_reads": 6}
    answer = proxy.decide({"state": STATES[0], "questions": TRIAGE, "read": read}).json()
    assert 6 == answer["reading"]["reads"]
    assert "extra_reads_skipped" in {warning["code"] for warning in answer["warnings"]}


def test_limits_make_a_question_abstain_and_low_label_mass_names_what_the_model_preferred(
    proxy: Proxy,
) -> None:
    question = {"type": "noul", "instructions": "Now?", "abstain": {"min_top_probability": 1.0}}
    odd = {"type": "choice", "instructions": "Which?", "criteria": {"QQ": None, "XZ": None}}
    answer = proxy.decide({"state": STATES[0], "questions": {"a": question, "b": odd}}).json()
    assert ("abstained", ["a"]) == (answer["answers"]["a"]["status"], answer["undecided"])
    (warning,) = (each for each in answer["warnings"] if each["code"] == "low_label_mass")
    assert ("b", True) == (warning["question"], "first choice was" in warning["message"])


def test_a_policy_is_applied_to_the_decisions_that_it_was_fitted_for(
    engine: Engine, start_proxy: Callable[..., Proxy], proxy: Proxy, tmp_path: Path
) -> None:
    request = {"state": STATES[0], "questions": TRIAGE, "read": {"samples": 1}}
    plain = proxy.decide(request).json()
    policy = tmp_path / "policy.yaml"
    fitted = {
        "policy": "warm",
        "fingerprint": plain["provenance"]["fingerprint"],
        "temperatures": {"noul": 2.0},
    }
    policy.write_text(json.dumps(fitted))
    fits = start_proxy(engine.url, ["--policy", str(policy)])
    fits.wait_until_ready()
    answer, other = (
        fits.decide(request).json(),
        fits.decide({**request, "questions": {"a": {"type": "noul", "instructions": "?"}}}).json(),
    )
    assert [True, False] == [each["calibration"]["fingerprint_match"] for each in (answer, other)]
    nouls = [name for name, each in answer["answers"].items() if each["type"] == "noul"]
    for name in TRIAGE:
        before, after = (each["answers"][name]["entropy"] for each in (plain, answer))
        assert (before < after) if name in nouls else (pytest.approx(before, abs=1e-4) == after)


def test_lint_foretells_what_a_decision_does(proxy: Proxy) -> None:
    body = {"questions": TRIAGE, "read": {"samples": 4}}
    report = _post(proxy, "/decide/lint", {**body, "state": STATES[0]}).json()
    answer = proxy.decide({**body, "state": STATES[0]}).json()
    assert answer["reading"]["groups"] == [
        [question["id"] for question in group["questions"]] for group in report["groups"]
    ]
    assert answer["reading"]["canvas_width"] == max(group["width"] for group in report["groups"])
    assert answer["reading"]["reads"] == report["reads"]["as_asked"]
    assert answer["reading"]["state_tokens"] == report["tokens"]["state"]
    assert answer["usage"]["engine_input_tokens"] == report["reads"]["prompt_tokens_as_asked"]
