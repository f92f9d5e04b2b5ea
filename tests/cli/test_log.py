"""`structured-server log`: what it prints, asks again and deletes, and what it exits with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from structured_server.core.reads import ReadRequest
from tests.engine.server import free_port
from tests.fake_backend import FakeBackend
from tests.golden.requests import TRIAGE
from tests.serving import serving_http

STATES = [f"502 number {n} — Zürich" for n in range(12)]
SYSTEM_ONE: dict[str, Any] = {
    "model": "jev-latest",
    "state": "502",
    "questions": {"urgent": {"type": "noul", "instructions": "Wake?"}},
}


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["log", *arguments])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that has states, `full`, and one that has none, `bare`."""
    folder = tmp_path_factory.mktemp("logs")
    key = folder / "key"
    key.write_text("0123456789abcdef")
    for name, with_state in (("full", True), ("bare", False)):
        settings: dict[str, Any] = {"decision_log": str(folder / name), "decision_log_state": with_state}
        with (
            serving_http(**settings, decision_log_key_file=str(key)) as url,
            httpx.Client(base_url=url) as http,
        ):
            for number, state in enumerate(STATES):
                body = {"state": state, "questions": TRIAGE, "read": {"seed": number}}
                metadata = {"metadata": {"customer": str(number % 3)}}
                assert 200 == http.post("/decide", json=body | metadata).status_code
            assert 200 == http.post("/v1/systemone", json=SYSTEM_ONE).status_code
            said = SYSTEM_ONE | {"instructions": "All about checkout."}
            assert 200 == http.post("/v1/systemone", json=said).status_code
    return folder


@pytest.fixture
def full(logs: Path, tmp_path: Path) -> str:
    """A copy of the log with states, to be changed."""
    copy = tmp_path / "full"
    copy.write_bytes((logs / "full").read_bytes())
    return str(copy)


@pytest.fixture(scope="module")
def same() -> Iterator[str]:
    """A server that reads as the one that was recorded."""
    with serving_http() as url:
        yield url


def lines(result: Result) -> list[dict[str, Any]]:
    """Return what was exported."""
    assert 0 == result.exit_code, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_export_writes_a_line_for_each_record(full: str) -> None:
    exported = lines(run("export", full))
    assert STATES == [each["state"] for each in exported if each["route"] == "/decide"]
    assert ["urgent", "team", "severity"] == list(exported[0]["questions"])
    assert 14 == len(exported)


def test_export_chooses(full: str) -> None:
    exported = lines(run("export", full))
    chosen = exported[3]
    assert [chosen] == lines(run("export", full, "--id", chosen["id"]))
    assert exported[1:12:3] == lines(run("export", full, "--metadata", "customer=1"))
    assert [] == lines(run("export", full, "--until", "2026-01-01"))
    assert exported == lines(run("export", full, "--since", "2026-01-01T00:00:00"))
    qs = exported[-2]["decision"]["provenance"]["question_set"]
    assert exported[-2:-1] == lines(run("export", full, "--question-set", qs))


def test_replay_against_the_same_model_finds_the_same(full: str, same: str) -> None:
    result = run("replay", full, "-u", same, "--tolerance", "0")
    assert 0 == result.exit_code, result.output
    assert "1 left out: they had instructions, which /decide has not." in result.output
    assert "13 asked again, 13 by just what had answered before (same fingerprint): 0 with" in result.output
    assert "Largest difference 0.0000" in result.output


def test_replay_against_another_model_shows_what_changed(full: str) -> None:
    def other(request: ReadRequest, token_id: int, position: int) -> float:
        return -float((token_id * 31 + position + sum(request.prompt.ids)) % 7) - 1

    with serving_http(FakeBackend(logprob=other)) as url:
        summary = json.loads((result := run("replay", full, "-u", url, "-o", "json")).output)
        shown = run("replay", full, "-u", url)
    assert 3 == result.exit_code == shown.exit_code
    assert (13, 0) == (summary["compared"], summary["same_fingerprint"])
    assert 0.02 < summary["largest_difference"] <= 1
    assert summary["mean_difference"] < summary["largest_difference"]
    recorded = {each["id"]: each["decision"]["answers"] for each in lines(run("export", full))}
    assert summary["furthest"]
    for each in summary["furthest"]:
        assert each["id"] in shown.output
        for name, (before, after) in each["changed"].items():
            assert before == recorded[each["id"]][name]["answer"] != after
            assert f"{name}: {before} → {after}" in " ".join(shown.output.split())


def test_replay_needs_states(logs: Path, same: str) -> None:
    result = run("replay", str(logs / "bare"), "-u", same)
    assert 4 == result.exit_code
    assert "13 left out: they were recorded without their state." in result.output
    assert "nothing could be asked again." in result.output


def test_replay_counts_what_a_server_refuses(full: str) -> None:
    with serving_http(FakeBackend(max_model_len=40)) as url:
        result = run("replay", full, "-u", url)
    assert 4 == result.exit_code
    assert "12 refused: " in result.output
    assert "1 refused: " in result.output


def test_replay_ends_where_no_server_is(full: str) -> None:
    result = run("replay", full, "-u", f"http://127.0.0.1:{free_port()}")
    assert 5 == result.exit_code
    assert "cannot reach" in result.output


def test_replay_ends_where_the_token_is_wrong(full: str) -> None:
    with serving_http(api_key=("right",)) as url:
        assert 6 == run("replay", full, "-u", url, "--token", "wrong").exit_code
        assert 0 == run("replay", full, "-u", url, "--token", "right", "--limit", "3").exit_code


def test_delete_takes_what_is_chosen(full: str) -> None:
    first = lines(run("export", full))[0]["id"]
    assert "1 deleted, 13 left\n" == run("delete", full, "--id", first).output
    assert "4 deleted, 9 left\n" == run("delete", full, "--metadata", "customer=1").output
    assert "0 deleted, 9 left\n" == run("delete", full, "--metadata", "customer=1").output
    assert "9 deleted, 0 left\n" == run("delete", full, "--since", "2026-01-01").output


def test_delete_finds_a_state_by_its_hash(logs: Path, tmp_path: Path) -> None:
    bare, text = tmp_path / "bare", tmp_path / "text"
    bare.write_bytes((logs / "bare").read_bytes())
    text.write_text(STATES[7], "utf-8")
    result = run("delete", str(bare), "--state-file", str(text), "--key-file", str(logs / "key"))
    assert "1 deleted, 13 left\n" == result.output
    assert not any(each["read"]["seed"] == 7 for each in lines(run("export", str(bare))))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say which records"),
        (("--state-file", "x"), "need each other"),
        (("--metadata", "customer"), "must be NAME=VALUE"),
        (("--until", "soon"), "does not match the formats"),
    ],
)
def test_delete_wants_to_know_which(full: str, arguments: tuple[str, ...], said: str) -> None:
    result = run("delete", full, *arguments)
    assert 2 == result.exit_code
    assert said in result.output
    assert 14 == len(lines(run("export", full)))


@pytest.mark.parametrize("command", ["export", "replay", "delete"])
def test_a_file_that_is_no_log_is_refused(command: str, tmp_path: Path) -> None:
    more = ("--id", "x") if command == "delete" else ()
    missing = run(command, str(tmp_path / "none"), *more)
    assert 4 == missing.exit_code
    assert "there is no decision log at" in missing.output
    assert not (tmp_path / "none").exists()
    (tmp_path / "notes").write_text("notes")
    other = run(command, str(tmp_path / "notes"), *more)
    assert 4 == other.exit_code
    assert "not a database" in other.output


@pytest.mark.parametrize("command", [(), ("export",), ("replay",), ("delete",)])
def test_help_has_examples(command: tuple[str, ...]) -> None:
    assert "Examples:\n    structured-server log " in run(*command, "--help").output
