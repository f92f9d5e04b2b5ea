"""The incident benchmark: its data, its figures, and the whole command against a server inside the test.

That server is a fake, because faults are wanted on demand; a real one is measured by running the benchmark.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.incident_figures import (
    Answer,
    Decision,
    Incident,
    drift,
    generation_prompt,
    latency,
    options,
    parse_generated,
)
from benchmarks.incident_triage import EXAMPLES, load_examples, main

QUESTIONS, INCIDENTS = load_examples()
VALID = '{"urgent":"yes","team":"networking","severity":"critical"}'
REFUSED_BY_DIFFUSION = {"temperature", "min_p", "seed", "min_tokens", "logit_bias", "response_format", "n"}


def answered(question: Mapping[str, Any], top: float) -> dict[str, Any]:
    """Answer a question as /decide does, the first option with probability `top`, the others alike."""
    keys = {
        "noul": ["true", "false"],
        "choice": list(question["criteria"]),
        "score": [str(i) for i in range(len(question["criteria"]))],
    }[question["type"]]
    rest = (1 - top) / (len(keys) - 1)
    answer: dict[str, Any] = {
        "type": question["type"],
        "status": "decided",
        "answer": {"noul": True, "choice": keys[0], "score": 0}[question["type"]],
        "probabilities": {key: top if key == keys[0] else rest for key in keys},
        "top_probability": top,
        "entropy": 1 - top,
        "label_mass": 0.9,
    }
    if question["type"] == "score":
        answer["legend"] = {str(i): level for i, level in enumerate(question["criteria"])}
    return answer


def decided(questions: Mapping[str, Mapping[str, Any]], reads: int = 1, top: float = 0.9) -> dict[str, Any]:
    """Build the body of POST /decide, as docs describe it, for these questions."""
    return {
        "id": "dec_1",
        "model": "dgemma",
        "answers": {name: answered(question, top) for name, question in questions.items()},
        "undecided": [],
        "usage": {
            "input_tokens": 200,
            "output_tokens": 3,
            "engine_input_tokens": 200 * reads,
            "cached_input_tokens": None,
        },
        "reading": {"reads": reads, "extended": reads > 1, "extended_by": ["team"] if reads > 1 else []},
        "provenance": {"server": "1.0.0", "method": "m1", "model_revision": None, "fingerprint": "fp_1"},
        "warnings": [],
        "timings_ms": {"queue": 0.1, "engine": 10.0 * reads, "total": 12.0 * reads},
    }


class FakeServer:
    """Server and engine in one transport, told apart by host; keeps what it was asked."""

    def __init__(
        self,
        ready: httpx.Response | Exception | None = None,
        decision: Callable[[int], httpx.Response | None] = lambda _: None,
        generated: httpx.Response | str = "garbage",
    ) -> None:
        self.ready = ready if ready is not None else httpx.Response(200, json={"ready": True})
        self.decision = decision
        self.generated = generated
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.requests.append(request)
        match request.url.host, request.url.path:
            case "server", "/ready":
                if isinstance(self.ready, Exception):
                    raise self.ready
                return self.ready
            case "server", "/decide":
                return self.decision(len(self.bodies("/decide"))) or self._decide(json.loads(request.content))
            case "engine", "/version":
                return httpx.Response(200, json={"version": "0.32.0"})
            case "engine", "/v1/chat/completions":
                if isinstance(self.generated, httpx.Response):
                    return self.generated
                return httpx.Response(200, json={"choices": [{"message": {"content": self.generated}}]})
        return httpx.Response(404)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """List the JSON bodies that were sent to a path."""
        return [json.loads(request.content) for request in self.requests if request.url.path == path]

    @staticmethod
    def _decide(body: Mapping[str, Any]) -> httpx.Response:
        unsure = "502" in body["state"]["alert"]
        reads = {1: 1, 4: 4, "auto": 4 if unsure else 1}[body["read"]["samples"]]
        return httpx.Response(200, json=decided(body["questions"], reads, top=0.6 if unsure else 0.99))


def run(server: FakeServer, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    """Run the command with the fake as its transport."""
    return CliRunner().invoke(
        main, ["--url", "http://server", *arguments], obj=httpx.MockTransport(server), env=env
    )


def run_for_receipt(server: FakeServer, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the command to its end and return the receipt that it wrote."""
    out = tmp_path / "new" / "receipt.json"
    result = run(server, "--rounds", "2", "--out", str(out), *arguments)
    assert (result.exit_code, result.exception) == (0, None), result.output
    receipt: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return receipt


class TestExamples:
    def test_there_are_four_clear_and_four_ambiguous_incidents_with_ids_of_their_own(self) -> None:
        assert Counter({True: 4, False: 4}) == Counter(incident.clear for incident in INCIDENTS)
        assert len(INCIDENTS) == len({incident.id for incident in INCIDENTS})

    def test_the_questions_are_the_three_that_fit_a_16_token_canvas(self) -> None:
        expected = {
            "urgent": ("noul", ("yes", "no")),
            "team": ("choice", ("compute", "networking", "security", "storage", "billing")),
            "severity": ("score", ("none", "minor", "major", "critical")),
        }
        assert expected == {name: (q["type"], options(q)) for name, q in QUESTIONS.items()}
        assert "Should we wake an on-call engineer?" == QUESTIONS["urgent"]["instructions"]

    def test_yaml_left_every_key_a_string(self) -> None:
        """YAML reads a bare true, yes or no as a boolean, which JSON would then spell in its own way."""
        assert {"true", "false"} == set(QUESTIONS["urgent"]["criteria"])
        assert json.loads(json.dumps(QUESTIONS)) == QUESTIONS

    @pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.id)
    def test_an_incident_is_short_and_judged_by_words_that_can_be_answered(self, incident: Incident) -> None:
        assert 200 < len(incident.text) < 1200
        assert 2 <= len(re.findall(r"[.;](?=\s|$)", incident.text)) <= 5
        if incident.clear:
            assert QUESTIONS.keys() == incident.expected.keys()
            assert all(word in options(QUESTIONS[name]) for name, word in incident.expected.items())
        else:
            assert len(incident.plausible) >= 2
            assert set(incident.plausible) <= set(options(QUESTIONS["team"]))

    def test_no_two_incidents_share_eight_words_in_a_row(self) -> None:
        seen: dict[tuple[str, ...], str] = {}
        for incident in INCIDENTS:
            words = re.findall(r"\w+", f"{incident.title} {incident.text}".lower())
            for start in range(len(words) - 7):
                assert incident.id == seen.setdefault(tuple(words[start : start + 8]), incident.id)

    def test_one_incident_is_a_502_spike_after_a_waf_change_and_a_release(self) -> None:
        found = [
            i.id for i in INCIDENTS if all(word in i.title + i.text for word in ("502", "WAF", "release"))
        ]
        assert ["spike_502"] == found

    def test_the_readme_shows_a_state_as_the_benchmark_sends_it(self) -> None:
        readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
        assert {"alert", "detail"} == INCIDENTS[0].state.keys()
        assert '{"alert": incident["title"], "detail": incident["text"]}' in readme

    @pytest.mark.parametrize(
        "wrong", [{"clear": True}, {"clear": False}, {"clear": False, "plausible": ["x"], "severity": "x"}]
    )
    def test_an_incident_without_what_it_is_judged_by_or_with_more_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            Incident.model_validate({"id": "a", "title": "b", "text": "c", **wrong})


class TestFigures:
    @pytest.mark.parametrize(
        ("values", "median", "p95"),
        [
            ([7.0], 7.0, 7.0),
            ([1.0, 3.0], 2.0, 2.9),
            ([5.0, 1.0, 3.0], 3.0, 4.8),
            ([float(i) for i in range(101)], 50.0, 95.0),
        ],
    )
    def test_latency_knows_the_median_and_the_p95(
        self, values: list[float], median: float, p95: float
    ) -> None:
        figures = latency(values)
        assert (median, values) == (figures["median_ms"], figures["ms"])
        assert p95 == pytest.approx(figures["p95_ms"])

    def test_latency_of_nothing_is_null_not_zero(self) -> None:
        assert {"median_ms": None, "p95_ms": None, "ms": []} == latency([])

    @given(st.lists(st.floats(0, 1e6), min_size=1))
    def test_median_and_p95_stay_between_the_extremes(self, values: list[float]) -> None:
        figures = latency(values)
        assert min(values) <= figures["median_ms"] <= max(values)
        assert min(values) <= figures["p95_ms"] <= max(values)

    def test_an_answer_is_spelled_in_the_words_of_the_canvas(self) -> None:
        decision = Decision.model_validate(decided(QUESTIONS, top=0.7))
        assert {"urgent": "yes", "team": "compute", "severity": "none"} == decision.words
        assert {"yes": 0.7, "no": pytest.approx(0.3)} == decision.answers["urgent"].distribution
        assert ["none", "minor", "major", "critical"] == list(decision.answers["severity"].distribution)

    def test_an_abstention_is_no_word(self) -> None:
        answer = Answer.model_validate(answered(QUESTIONS["urgent"], 0.5) | {"answer": None})
        assert answer.word is None

    @pytest.mark.parametrize("name", list(QUESTIONS))
    def test_an_answer_that_is_no_option_is_refused(self, name: str) -> None:
        with pytest.raises(ValidationError, match="no option"):
            Answer.model_validate(answered(QUESTIONS[name], 0.5) | {"answer": "7"})

    def test_a_decision_on_other_options_is_noticed(self) -> None:
        other = {**QUESTIONS, "team": {"type": "choice", "criteria": {"compute": None, "storage": None}}}
        decision = Decision.model_validate(decided(other))
        assert not decision.answers_all(QUESTIONS)
        assert decision.answers_all(other)

    def test_drift_is_the_largest_change_of_a_probability(self) -> None:
        decisions = [Decision.model_validate(decided(QUESTIONS, top=top)) for top in (0.7, 0.72, 0.6)]
        assert pytest.approx(0.1) == drift(decisions)
        assert 0 == drift(decisions[:1])

    def test_a_clear_incident_is_judged_by_each_answer_and_an_ambiguous_one_by_its_team(self) -> None:
        clear = next(i for i in INCIDENTS if i.clear)
        assert (3, 3) == clear.judge(clear.expected)
        assert (2, 3) == clear.judge(clear.expected | {"team": "billing"})
        spike = next(i for i in INCIDENTS if i.id == "spike_502")
        assert (1, 1) == spike.judge({"team": "networking"})
        assert (0, 1) == spike.judge({"team": None})


class TestGeneratedReplies:
    @pytest.mark.parametrize("text", [VALID, f"  {VALID}\n", f"```json\n{VALID}\n```", f"```\n{VALID}```"])
    def test_the_json_that_was_asked_for_is_valid_bare_or_fenced(self, text: str) -> None:
        assert ("valid", json.loads(VALID)) == parse_generated(text, QUESTIONS)

    @pytest.mark.parametrize(
        "text",
        [
            VALID.replace("networking", "network"),
            VALID.replace('"yes"', "true"),
            VALID.replace('"yes"', '["yes"]'),
            VALID.replace("team", "squad"),
            VALID.replace("}", ',"note":"x"}'),
            "[]",
            "3",
            "NaN",
        ],
    )
    def test_json_of_another_kind_is_not_allowed(self, text: str) -> None:
        assert ("not_allowed", None) == parse_generated(text, QUESTIONS)

    @pytest.mark.parametrize(
        "text", ["", "Sure! " + VALID, VALID[:-1], "[" * 100_000, "1" * 5000, "```json\n```"]
    )
    def test_anything_else_is_unparsed(self, text: str) -> None:
        assert ("unparsed", None) == parse_generated(text, QUESTIONS)

    @given(st.text() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
    def test_any_text_has_an_outcome_and_no_exception(self, text: str) -> None:
        outcome, words = parse_generated(text, QUESTIONS)
        assert (words is not None) == (outcome == "valid")

    def test_the_prompt_holds_every_instruction_word_and_criterion(self) -> None:
        prompt = generation_prompt(QUESTIONS)
        for question in QUESTIONS.values():
            assert question["instructions"] in prompt
            assert all(f"\n- {word}" in prompt for word in options(question))
        for criteria in (QUESTIONS["urgent"]["criteria"], QUESTIONS["team"]["criteria"]):
            assert all(text in prompt for text in criteria.values())


class TestCommand:
    def test_a_run_measures_each_kind_on_each_incident_and_drops_the_warm_up(self, tmp_path: Path) -> None:
        server = FakeServer()
        receipt = run_for_receipt(server, tmp_path)
        sent = Counter(body["read"]["samples"] for body in server.bodies("/decide"))
        assert Counter({1: 8 * (1 + 3), 4: 8 * 3, "auto": 8 * 3}) == sent
        assert [incident.id for incident in INCIDENTS] == [row["id"] for row in receipt["incidents"]]
        for row in receipt["incidents"]:
            assert {"first": 2, "extended": 2, "auto": 2} == {
                k: len(v["ms"]) for k, v in row["latency"].items()
            }
            assert row["first_call"]["ms"] > 0
            assert row["generative"] is None

    def test_requests_are_those_of_decide(self, tmp_path: Path) -> None:
        server = FakeServer()
        run_for_receipt(server, tmp_path, "--model", "other")
        body = server.bodies("/decide")[0]
        written = yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
        expected = {
            "model": "other",
            "state": INCIDENTS[0].state,
            "questions": written,
            "read": {"samples": 1},
        }
        assert expected == body
        assert list(written) == list(body["questions"])

    def test_the_receipt_says_what_extended_and_what_was_read(self, tmp_path: Path) -> None:
        receipt = run_for_receipt(FakeServer(), tmp_path)
        rows = {row["id"]: row for row in receipt["incidents"]}
        assert (2, ["team"]) == (rows["spike_502"]["extended_rounds"], rows["spike_502"]["extended_by"])
        assert (0, []) == (rows["nodes_notready"]["extended_rounds"], rows["nodes_notready"]["extended_by"])
        assert 0.6 == rows["spike_502"]["answers"]["team"]["probabilities"]["compute"]
        assert pytest.approx(0.4) == rows["spike_502"]["answers"]["team"]["first_read_entropy"]
        assert 48.0 == rows["spike_502"]["latency"]["auto"]["server_median_ms"]
        assert 10.0 == rows["spike_502"]["latency"]["first"]["engine_median_ms"]
        assert (0, 1) == tuple(
            receipt["summary"][kind]["extended_incidents"] for kind in ("clear", "ambiguous")
        )

    def test_the_receipt_says_where_it_comes_from(self, tmp_path: Path) -> None:
        receipt = run_for_receipt(
            FakeServer(), tmp_path, "--engine-url", "http://engine/", "--hardware", "one L4"
        )
        assert ("1.0.0", "m1", "fp_1", "0.32.0") == tuple(
            receipt["versions"][name] for name in ("server", "method", "fingerprint", "engine")
        )
        assert receipt["machine"]["cpus"] >= 1
        assert "one L4" == receipt["machine"]["hardware_of_engine"]
        assert ("http://server", "dgemma", 2) == tuple(
            receipt["settings"][name] for name in ("url", "model", "rounds")
        )

    def test_the_table_names_every_incident_and_the_closing_lines_both_groups(self) -> None:
        output = run(FakeServer(), "--rounds", "1").output
        assert all(incident.id in output for incident in INCIDENTS)
        assert "0 of 4 extended" in output
        assert "1 of 4 extended" in output

    def test_garbage_from_generation_is_reported_and_still_timed(self, tmp_path: Path) -> None:
        server = FakeServer(generated="\x00 garbage {")
        receipt = run_for_receipt(server, tmp_path, "--generative", "--engine-url", "http://engine")
        assert {"unparsed": 16} == receipt["summary"]["generative"]["outcomes"]
        assert receipt["summary"]["generative"]["ratio"]["first"] > 0
        assert receipt["incidents"][0]["generative"]["answer"] is None

    def test_a_valid_generated_answer_is_judged_like_a_decision(self, tmp_path: Path) -> None:
        receipt = run_for_receipt(
            FakeServer(generated=VALID), tmp_path, "--generative", "--engine-url", "http://engine"
        )
        rows = {row["id"]: row["generative"] for row in receipt["incidents"]}
        assert {"valid": 2} == rows["routes_withdrawn"]["outcomes"]
        assert json.loads(VALID) == rows["routes_withdrawn"]["answer"]
        assert 3 == rows["routes_withdrawn"]["right"]

    @pytest.mark.parametrize(
        "reply",
        [
            httpx.Response(500, text="dead"),
            httpx.Response(200, text="not json"),
            httpx.Response(200, json={"choices": []}),
            httpx.Response(200, json=["choices"]),
        ],
    )
    def test_a_failing_engine_is_an_outcome_and_is_not_timed(
        self, reply: httpx.Response, tmp_path: Path
    ) -> None:
        server = FakeServer(generated=reply)
        receipt = run_for_receipt(server, tmp_path, "--generative", "--engine-url", "http://engine")
        assert {"failed": 16} == receipt["summary"]["generative"]["outcomes"]
        assert receipt["summary"]["generative"]["median_ms"] is None
        assert receipt["summary"]["generative"]["ratio"]["first"] is None

    def test_generation_asks_for_nothing_that_a_diffusion_model_refuses(self, tmp_path: Path) -> None:
        server = FakeServer()
        run_for_receipt(server, tmp_path, "--generative", "--engine-url", "http://engine")
        bodies = server.bodies("/v1/chat/completions")
        assert len(bodies) == 8 * 3
        assert all(not REFUSED_BY_DIFFUSION & body.keys() for body in bodies)
        assert ["system", "user"] == [message["role"] for message in bodies[0]["messages"]]
        assert INCIDENTS[0].state == json.loads(bodies[0]["messages"][1]["content"])

    def test_the_token_goes_to_the_server_only_and_never_into_the_receipt(self, tmp_path: Path) -> None:
        server = FakeServer()
        arguments = ["--token", "s3cret", "--engine-url", "http://engine", "--generative"]
        receipt = run_for_receipt(server, tmp_path, *arguments)
        sent = {request.url.host: request.headers.get("authorization") for request in server.requests}
        assert {"server": "Bearer s3cret", "engine": None} == sent
        assert "s3cret" not in json.dumps(receipt)

    def test_the_token_may_come_from_the_environment(self) -> None:
        server = FakeServer()
        run(server, "--rounds", "1", env={"STRUCTURED_SERVER_TOKEN": "from-env"})
        assert "Bearer from-env" == server.requests[0].headers["authorization"]


class TestFaults:
    def test_a_server_that_is_not_ready_ends_with_5_and_what_it_says(self) -> None:
        loading = httpx.Response(503, json={"ready": False, "step": "warming width 32", "seconds": 12.5})
        server = FakeServer(ready=loading)
        result = run(server)
        assert 5 == result.exit_code
        assert "warming width 32" in result.output
        assert ["/ready"] == [request.url.path for request in server.requests]

    def test_an_address_where_nothing_listens_ends_with_5(self) -> None:
        result = run(FakeServer(ready=httpx.ConnectError("connection refused")))
        assert 5 == result.exit_code
        assert "connection refused" in result.output

    def test_a_server_that_starts_to_load_again_ends_with_5(self) -> None:
        error = {"error": {"code": "loading", "message": "The engine went away.", "retryable": True}}
        result = run(FakeServer(decision=lambda call: httpx.Response(503, json=error) if call > 9 else None))
        assert 5 == result.exit_code
        assert "The engine went away." in result.output

    @pytest.mark.parametrize("status", [401, 413, 422, 502, 503, 504])
    def test_a_refused_decision_ends_with_1_and_the_servers_message(self, status: int) -> None:
        error = {"error": {"code": "some_code", "message": "what was wrong", "hint": "what would be right"}}
        result = run(FakeServer(decision=lambda _: httpx.Response(status, json=error)))
        assert 1 == result.exit_code
        assert not isinstance(result.exception, Exception)
        assert all(part in result.output for part in (str(status), "nodes_notready", "what would be right"))

    @pytest.mark.parametrize(
        "body",
        [b"", b"garbage", b"[]", b'{"answers": {}}', json.dumps(decided({})).encode()],
        ids=["empty", "garbage", "list", "partial", "no answers"],
    )
    def test_a_body_that_is_no_decision_ends_with_1_and_no_traceback(self, body: bytes) -> None:
        result = run(FakeServer(decision=lambda _: httpx.Response(200, content=body)))
        assert 1 == result.exit_code
        assert not isinstance(result.exception, Exception)
        assert "POST /decide" in result.output

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--generative"],
            ["--rounds", "0"],
            ["--engine-url", "127.0.0.1:8000"],
            ["--engine-url", "http://user:pass@engine"],
            ["--engine-url", "http://engine:http"],
        ],
    )
    def test_wrong_usage_ends_with_2_before_any_call(self, arguments: list[str]) -> None:
        server = FakeServer()
        assert 2 == run(server, *arguments).exit_code
        assert [] == server.requests

    def test_help_shows_calls_that_can_be_copied(self) -> None:
        output = CliRunner().invoke(main, ["--help"]).output
        assert "python benchmarks/incident_triage.py --url http://127.0.0.1:8080" in output
