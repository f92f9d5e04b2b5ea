"""`structured-server lint`: what it prints and exits with, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from structured_server.backends.embedded.model import PACKAGED
from structured_server.cli.main import cli
from structured_server.wire.lint import LintResponse
from tests.golden.requests import SEVERITY, TEAM, TRIAGE, URGENT

TWINS = {
    "urgent": {"type": "noul", "instructions": "Is it?"},
    "late": {"type": "noul", "instructions": "Was it?"},
}
WIDE = {"which": {"type": "choice", "criteria": {f"shelf {index}": None for index in range(20)}}}


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["lint", *arguments])


def reported(*arguments: str) -> LintResponse:
    """Return the report, held against its documented type."""
    result = run(*arguments, "-o", "json")
    assert result.exit_code in (0, 3), result.output
    return LintResponse.model_validate_json(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of questions."""
    for name, body in {
        "triage": TRIAGE,
        "twins": TWINS,
        "wide": WIDE,
        "request": {"questions": TRIAGE, "read": {"samples": 3}},
        "reworded": {**TRIAGE, "team": {**TEAM, "instructions": "Who?"}},
        "judged": {**TRIAGE, "urgent": {**URGENT, "threshold": 0.9}},
        "bad": {"q": {"type": "choice", "criteria": {"only": "SECRET"}}},
        "wrong_read": {"questions": TRIAGE, "read": 3},
    }.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(body, sort_keys=False))
    return tmp_path


def test_a_clean_file_exits_with_0_and_shows_its_canvas(folder: Path) -> None:
    result = run(str(folder / "triage.yaml"))
    assert 0 == result.exit_code, result.output
    for said in (
        '{"urgent":"⟦urgent⟧","team":"⟦team⟧","severity":"⟦severity⟧"}',
        "of 16 tokens",
        "no cap",
        "compute, networking",
        "auto at most 4",
        "room for a state",
        "No warnings.",
    ):
        assert said in result.output


def test_warnings_exit_with_3(folder: Path) -> None:
    result = run(str(folder / "twins.yaml"))
    assert 3 == result.exit_code
    assert "[nouls_share_canvas]" in result.output
    assert 0 == run(str(folder / "twins.yaml"), "--isolate", "auto").exit_code


def test_read_options_come_from_the_file_and_flags_win(folder: Path) -> None:
    file = str(folder / "request.yaml")
    assert (3, 3) == ((found := reported(file).reads).samples, found.as_asked)
    assert 2 == reported(file, "--samples", "2").reads.as_asked
    options = ("--isolate", "all", "--template", "lines", "--keys", "neutral", "--layout", "document_first")
    report = reported(file, *options)
    assert ["a:⟦urgent⟧<turn|>"] == [group.canvas for group in report.groups][:1]
    assert (3, 9) == (len(report.groups), report.reads.as_asked)


def test_the_packaged_model_is_the_default_and_flags_set_other_limits(folder: Path) -> None:
    file = str(folder / "wide.yaml")
    engine = reported(file).engine
    assert (None, 6144, [16, 32, 48, 64]) == (engine.max_label_ids, engine.max_model_len, engine.widths)
    other = reported(file, "--max-label-ids", "12", "--max-model-len", "999", "--canvas", "32").engine
    assert (12, 999, [16, 32]) == (other.max_label_ids, other.max_model_len, other.widths)
    served = ("--tokenizer", str(PACKAGED))
    assert (128, None) == ((found := reported(file, *served).engine).max_label_ids, found.max_model_len)
    assert reported(file, *served, "--max-label-ids", "0").engine.max_label_ids is None
    narrow = run(file, "--max-label-ids", "12")
    assert 3 == narrow.exit_code
    assert "[wide_choice]" in narrow.output
    assert "and 8 more" in narrow.output


def test_states_are_counted(folder: Path) -> None:
    state = folder / "state.json"
    state.write_text('{"alert": "502 spike"}')
    file = str(folder / "triage.yaml")
    report = reported(file, "--state-file", str(state))
    assert report.tokens.state
    assert "502 spike" not in report.model_dump_json()
    assert f"the state has {report.tokens.state}" in run(file, "-f", str(state)).output
    result = run(file, "--state-tokens", "6000")
    assert 3 == result.exit_code
    assert "[state_too_long_for_engine]" in result.output


def test_against_an_earlier_file_names_what_moves_numbers(folder: Path) -> None:
    result = run(str(folder / "reworded.yaml"), "--against", str(folder / "triage.yaml"))
    assert 0 == result.exit_code
    assert "- team: Its instructions are worded otherwise. Moves urgent, team, severity." in result.output
    report = reported(str(folder / "request.yaml"), "--against", str(folder / "triage.yaml"))
    assert report.against is not None
    assert ["read.samples"] == [each.code for each in report.against.changes]


def test_against_an_equal_file_nothing_moves(folder: Path) -> None:
    for old in ("triage", "judged"):
        result = run(str(folder / "triage.yaml"), "--against", str(folder / f"{old}.yaml"))
        assert 0 == result.exit_code
        assert "Nothing moves numbers" in result.output
    flags = ("--against", str(folder / "triage.yaml"), "--samples", "2")
    assert "Nothing moves numbers" in run(str(folder / "request.yaml"), *flags).output


def test_stages_show_what_they_go_on_from(folder: Path) -> None:
    file = folder / "stages.yaml"
    asked: dict[str, Any] = {"urgent": URGENT, "severity": {**SEVERITY, "depends_on": ["urgent"]}}
    file.write_text(json.dumps(asked))
    output = run(str(file)).output
    assert "canvas 2 of 2, stage 2" in output
    assert 'goes on from {"urgent":"⟦urgent⟧' in output


def test_bad_input_exits_with_4_and_says_where(folder: Path) -> None:
    broken = folder / "broken.yaml"
    broken.write_text("urgent: [")
    dated = folder / "dated.yaml"
    dated.write_text("{q: {type: noul, instructions: !!timestamp 2024-01-01}}")
    triage, bad = str(folder / "triage.yaml"), str(folder / "bad.yaml")
    for arguments, said in (
        ((str(folder / "nothing.yaml"),), "cannot read"),
        ((str(broken),), "line 1"),
        ((str(dated),), "no word for its date"),
        ((bad,), "questions.q.criteria needs at least 2 options"),
        ((triage, "--against", bad), "against.questions.q.criteria needs at least 2 options"),
        ((str(folder / "wrong_read.yaml"), "--samples", "2"), "read"),
        ((triage, "--samples", "many"), "read.samples"),
        ((triage, "--canvas", "17"), "--canvas must be a multiple of 16"),
        ((triage, "--max-model-len", "20"), "leaves no room"),
        ((triage, "-f", str(folder / "none.txt")), "cannot read"),
        ((triage, "--tokenizer", str(folder)), "tokenizer"),
    ):
        result = run(*arguments)
        assert 4 == result.exit_code, result.output
        assert said in result.output
        assert "SECRET" not in result.output


def test_unknown_flags_exit_with_2() -> None:
    assert 2 == run("questions.yaml", "--bogus").exit_code


def test_help_has_examples_and_exit_codes() -> None:
    output = run("--help").output
    assert "structured-server lint questions.yaml --against" in output
    assert "Exit codes: 0 clean, 3 warnings, 4 bad input." in output
