"""`structured-server decide` against a server over real HTTP: what it sends, prints, and exits with."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from tests.engine.server import free_port
from tests.fake_server import serving
from tests.golden.requests import TEAM, TRIAGE
from tests.serving import serving_http


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server without keys."""
    with serving_http() as url:
        yield url


@pytest.fixture
def questions(tmp_path: Path) -> str:
    """A file of questions."""
    file = tmp_path / "questions.yaml"
    file.write_text(yaml.safe_dump(TRIAGE, sort_keys=False))
    return str(file)


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["decide", *arguments], input=stdin)


def test_a_state_from_the_argument_gets_a_table(url: str, questions: str) -> None:
    result = run("-u", url, "-q", questions, "502 spike on checkout")
    assert 0 == result.exit_code, result.output
    for word in ("urgent", "team", "severity", "networking", "critical", "reads"):
        assert word in result.output


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_base_url_works_with_and_without_v1(url: str, questions: str, suffix: str) -> None:
    assert 0 == run("-u", url + suffix, "-q", questions, "x").exit_code


def test_json_is_the_servers_own(url: str, questions: str) -> None:
    answer = json.loads(run("-u", url, "-q", questions, "-o", "json", "x").output)
    assert ["urgent", "team", "severity"] == list(answer["answers"])


def test_the_state_is_the_same_from_argument_file_and_stdin(url: str, questions: str, tmp_path: Path) -> None:
    file = tmp_path / "state.txt"
    file.write_text("Zürich: 502 “spike”", "utf-8")
    shared = ("-u", url, "-q", questions, "-o", "json")
    results = [
        run(*shared, "Zürich: 502 “spike”"),
        run(*shared, "-f", str(file)),
        run(*shared, "-", stdin="Zürich: 502 “spike”"),
    ]
    answers = [json.loads(result.output)["answers"] for result in results]
    assert answers[0] == answers[1] == answers[2]


def test_a_json_state_is_sent_as_json(url: str, questions: str, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"alert": "502"}')
    shared = ("-u", url, "-q", questions, "-o", "json")
    compact = json.loads(run(*shared, '{"alert":"502"}').output)["answers"]
    assert compact == json.loads(run(*shared, "-f", str(file)).output)["answers"]
    assert compact == json.loads(run(*shared, "--json-state", '{ "alert": "502" }').output)["answers"]


def test_options_reach_the_server(url: str, questions: str) -> None:
    options = ("--samples", "2", "--layout", "document_first", "--isolate", "all", "-m", "dgemma")
    reading = json.loads(run("-u", url, "-q", questions, "-o", "json", *options, "x").output)["reading"]
    assert (6, "document_first", "all") == (reading["reads"], reading["layout"], reading["isolate"])


def test_a_request_without_its_state_is_a_file_of_questions_too(url: str, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"questions": TRIAGE, "read": {"samples": 3}}))
    assert 3 == json.loads(run("-u", url, "-q", str(file), "-o", "json", "x").output)["reading"]["reads"]


def test_something_undecided_exits_with_3(url: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"team": {**TEAM, "abstain": {"min_top_probability": 1}}}))
    result = run("-u", url, "-q", str(file), "x")
    assert 3 == result.exit_code
    assert "(abstained)" in result.output


def test_a_skipped_question_is_shown_with_what_it_waits_for_and_exits_with_3(
    url: str, tmp_path: Path
) -> None:
    undecided = {**TEAM, "abstain": {"min_top_probability": 1}}
    waiting = {"type": "noul", "instructions": "So?", "ask_if": {"team": ["networking", "storage"]}}
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"team": undecided, "follow_up": waiting}))
    result = run("-u", url, "-q", str(file), "x")
    assert 3 == result.exit_code, result.output
    _, _, rest = result.output.partition("follow_up")
    assert rest.split()[0] == "(skipped)"
    assert "asked only where team is networking or storage" in " ".join(rest.split())


def test_bad_input_exits_with_4_and_says_where(url: str, questions: str, tmp_path: Path) -> None:
    broken, binary, empty = tmp_path / "broken.yaml", tmp_path / "binary", tmp_path / "empty.yaml"
    broken.write_text("urgent: [")
    date = tmp_path / "date.yaml"
    date.write_text("urgent: 2026-13-45")
    binary.write_bytes(b"\xff\xfe")
    empty.write_text("")
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump({"q": {"type": "choice", "criteria": {"only": None}}}))
    for arguments, said in (
        (("-q", str(tmp_path / "nothing.yaml"), "x"), "cannot read"),
        (("-q", str(broken), "x"), "line 1"),
        (("-q", str(date), "x"), "questions.urgent"),
        (("-q", str(binary), "x"), "not UTF-8"),
        (("-q", str(empty), "x"), "must hold questions"),
        (("-q", str(bad), "x"), "questions.q.criteria needs at least 2 options"),
        (("-q", questions), "give the state once"),
        (("-q", questions, "-f", str(binary), "x"), "give the state once"),
        (("-q", questions, "-f", str(tmp_path / "none.txt")), "cannot read"),
        (("-q", questions, "-f", str(binary)), "not UTF-8"),
        (("-q", questions, "--json-state", "{"), "not JSON"),
        (("-q", questions, "--samples", "many", "x"), "read.samples"),
        (("-q", questions, "-m", "gpt", "x"), "not served here"),
    ):
        result = run("-u", url, *arguments)
        assert 4 == result.exit_code, (arguments, result.output)
        assert said in result.output


def test_a_server_that_is_not_there_exits_with_5(questions: str) -> None:
    result = run("-u", f"http://127.0.0.1:{free_port()}", "-q", questions, "x")
    assert 5 == result.exit_code
    assert "cannot reach" in result.output


def test_a_server_of_another_kind_exits_with_5(questions: str) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        result = run("-u", f"http://127.0.0.1:{other.server_port}", "-q", questions, "x")
        thread.join()
    assert 5 == result.exit_code
    assert "not as a structured-server does" in result.output


def test_options_named_yes_and_no_are_those_words(url: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.yaml"
    file.write_text("known: {type: choice, instructions: 'Seen?', criteria: {yes: null, no: null, on: null}}")
    answers = json.loads(run("-u", url, "-q", str(file), "-o", "json", "x").stdout)["answers"]
    assert ["yes", "no", "on"] == list(answers["known"]["probabilities"])


def test_what_answers_in_place_of_a_server_is_told_as_such(questions: str) -> None:
    said: Any
    for said in ({"hello": 1}, {"model": "m", "answers": {}}, []):
        with serving(lambda *_, said=said: (200, said, {})) as other:
            for output in ("table", "csv"):
                result = run("-u", other.url, "-q", questions, "-o", output, "x")
                assert (5, False) == (result.exit_code, "Traceback" in result.output), result.output


def test_keys_are_sent_and_their_lack_exits_with_6(questions: str) -> None:
    with serving_http(api_key=("right",)) as url:
        assert 0 == run("-u", url, "-q", questions, "--token", "right", "x").exit_code
        for arguments in ((), ("--token", "wrong")):
            result = run("-u", url, "-q", questions, *arguments, "x")
            assert 6 == result.exit_code
            assert "--token" in result.output


def test_every_command_has_help_with_examples() -> None:
    for command in ("decide", "demo", "serve"):
        result = CliRunner().invoke(cli, [command, "--help"])
        assert 0 == result.exit_code
        assert f"structured-server {command}" in result.output.split("Examples:")[1]
