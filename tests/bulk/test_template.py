"""Bulk labelling by a template whose variables are a row's columns."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from tests.bulk.labelling import manifest_of, read_csv
from tests.fake_server import answer, serving


def batch(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["batch", *map(str, arguments), "--quiet"])


def test_columns_are_variables_and_the_packaged_one_works(embedded_url: str, tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(
        'id,alert\n1,"Card charges are ""declined"",\nall of them"\n2,\n3,Border routers are down\n'
    )
    result = batch(source, "-t", "incident_triage", "-o", out, "-u", embedded_url, "-v", "service=shop")
    rows = read_csv(out)
    assert 3 == len(rows), result.output
    assert ["billing", "networking"] == [rows[0]["team"], rows[2]["team"]]
    assert "template" in manifest_of(out)["settings"]
    again = batch(source, "-t", "incident_triage", "-o", out, "-u", embedded_url, "-v", "service=shop")
    assert 0 == again.exit_code or "team" in again.output
    other = batch(source, "-t", "incident_triage", "-o", out, "-u", embedded_url, "-v", "service=bank")
    assert 4 == other.exit_code, "another variable is another question"


def test_a_row_that_does_not_fit_is_an_error_row_and_the_others_are_asked(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    template = tmp_path / "t.json.tmpl"
    template.write_text(
        '{"state": {{ x | tojson }}, "questions": {"q": {"type": "noul", "instructions": "{{ ask }}"}}}'
    )
    lines = [
        {"x": "a", "ask": "So?"},
        {"x": {"b": 1}, "ask": "So?"},
        {"ask": "So?"},
        {"x": "c", "ask": "Why?"},
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with serving(lambda _, body: answer(body)) as server:
        result = batch(source, "-t", template, "-o", out, "-u", server.url)
    assert 3 == result.exit_code, result.output
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert ["a", {"b": 1}] == [asked["state"] for asked in server.asked]
    assert "needs x" in written[2]["_error"]
    assert "not those of the other rows" in written[3]["_error"]


def test_what_cannot_work_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text\nhello\n")
    questions = tmp_path / "q.yaml"
    questions.write_text("q: {type: noul, instructions: So}")
    for arguments, code, said in (
        (("-t", "incident_triage"), 4, "needs alert; the input has text"),
        (("-t", "nope"), 4, "no packaged template"),
        (("-t", "incident_triage", "-v", "alert=x", "-v", "servise=y"), 4, "no variable servise"),
        (("-t", "incident_triage", "-q", questions), 2, "say once what is asked"),
        ((), 2, "say once what is asked"),
        (("-t", "incident_triage", "--state-column", "text"), 2, "leave --state-column out"),
        (("-q", questions, "-v", "a=b"), 2, "are for --template"),
    ):
        result = batch(source, "-o", tmp_path / "out.csv", "-u", "http://127.0.0.1:9", *arguments)
        assert (code, True) == (result.exit_code, said in result.output), result.output
