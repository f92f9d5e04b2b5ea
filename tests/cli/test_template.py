"""`structured-server template`, and deciding by a template with the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from structured_server.templates import packaged
from tests.gemma import MADE


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


@pytest.mark.parametrize("name", [template.name for template in packaged()])
def test_each_packaged_template_is_answered(embedded_url: str, name: str) -> None:
    template = next(each for each in packaged() if each.name == name)
    assert set(template.example) == {each.name for each in template.variables}
    flags = [flag for each, value in template.example.items() for flag in ("-v", f"{each}={value}")]
    result = run("decide", "-u", embedded_url, "-t", name, *flags, "-o", "json")
    assert result.exit_code in (0, 3), result.output
    assert set(json.loads(result.stdout)["answers"]) == set(
        template.render({v.name: "" for v in template.variables})["questions"]
    )


def test_variables_come_from_flags_files_and_json_and_flags_win(tmp_path: Path) -> None:
    (tmp_path / "alert.txt").write_text("502\n“spike”", "utf-8")
    (tmp_path / "vars.yaml").write_text("service: 7\nalert: other\n")
    shared = ("template", "render", "incident_triage")
    body = json.loads(
        run(*shared, "-d", str(tmp_path / "vars.yaml"), "-v", f"alert=@{tmp_path}/alert.txt").output
    )
    assert {"alert": "502\n“spike”", "service": "7"} == body["state"]
    said = run(*shared, "-v", "alert:=true", "-o", "yaml").output
    assert {"alert": "true", "service": "unknown"} == yaml.safe_load(said)["state"]
    assert set(json.loads(run(*shared, "-v", "alert=x", "--schema").output)) == {"urgent", "team", "severity"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-v", "alert"), "write NAME=TEXT"),
        (("-v", "=x"), "write NAME=TEXT"),
        (("-v", "alert:={"), "is no JSON"),
        (("-v", "alert:=NaN"), "is no JSON: NaN is no number"),
        (("-v", "alert:=" + "[" * 5000), "nested too deep"),
        (("-v", 'alert:="\\ud800"'), "alert: there is half a character in it"),
        (("-v", "alert=\udcff"), "alert: there is half a character in it"),
        (("-v", "alert=@/nowhere"), "cannot read /nowhere"),
        (("-v", "alert=@ann wrote"), """with @ is given as alert:='"@..."'"""),
        (("-d", "/nowhere"), "cannot read /nowhere"),
        ((), "needs alert"),
        (("-v", "alert=x", "-v", "alerts=y"), "did you mean alert?"),
    ],
)
def test_what_is_wrong_with_variables_exits_with_4(arguments: tuple[str, ...], said: str) -> None:
    for command in (("template", "render", "incident_triage"), ("decide", "-t", "incident_triage")):
        result = run(*command, *arguments)
        assert (4, True) == (result.exit_code, said in result.output), result.output


def test_a_file_of_variables_holds_what_json_could_say(tmp_path: Path) -> None:
    for name, text, said in (
        ("v.json", '{"alert": NaN}', "v.json is neither JSON nor YAML: NaN"),
        ("v.json", '{"alert": 1,\n"alert" 2}', "v.json, line 2 is neither JSON nor YAML"),
        ("v.json", "[1]", "must hold an object"),
        ("v.yaml", "alert: a\nalert: b", "v.yaml, line 2 is neither JSON nor YAML"),
        ("v.yaml", "alert: !!timestamp 2026-11-30", "no word for its date"),
    ):
        (tmp_path / name).write_text(text)
        result = run("template", "render", "incident_triage", "-d", str(tmp_path / name))
        assert (4, True) == (result.exit_code, said in result.output), result.output
    (tmp_path / "v.yaml").write_text("alert: yes\nservice: 2026-11-30\n")
    body = json.loads(run("template", "render", "incident_triage", "-d", str(tmp_path / "v.yaml")).output)
    assert {"alert": "yes", "service": "2026-11-30"} == body["state"]


def test_a_variable_may_come_from_standard_input() -> None:
    arguments = ("template", "render", "incident_triage", "-v", "alert=@-")
    result = CliRunner().invoke(cli, arguments, input="502\n“spike”".encode())
    assert "502\n“spike”" == json.loads(result.output)["state"]["alert"]
    broken = CliRunner().invoke(cli, arguments, input=b"\xff")
    assert (4, True) == (broken.exit_code, "not UTF-8" in broken.output)


@pytest.mark.parametrize("name", [template.name for template in packaged()])
def test_each_packaged_template_has_examples(name: str) -> None:
    template = next(each for each in packaged() if each.name == name)
    body = json.loads(run("template", "render", name, "--example").output)
    state = body["state"] if isinstance(body["state"], dict) else {"ticket": body["state"]}
    assert set(template.example.values()) == set(state.values())


def test_a_file_that_is_not_there_but_packaged_is_told_with_the_way_to_it(tmp_path: Path) -> None:
    file = tmp_path / "support_triage.json.tmpl"
    result = run("template", "show", str(file))
    assert 4 == result.exit_code
    command = result.output.partition("`structured-server ")[2].partition("`")[0]
    assert 0 == run(*command.split()).exit_code
    assert "ticket" in run("template", "show", str(file)).output


def test_templates_are_listed_and_shown() -> None:
    listed = run("template", "list").output
    assert all(template.name in listed for template in packaged())
    shown = run("template", "show", "incident_triage").output
    assert 'service (may be left out, default "unknown"): the service' in shown
    assert "such as" in shown
    assert run("template", "show", "incident_triage", "--source").output.startswith("{#")


def test_a_new_one_is_written_once_and_works(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml.tmpl"
    assert 0 == run("template", "new", str(file)).exit_code
    assert 0 == run("template", "render", str(file), "-v", "alert=x").exit_code
    again = run("template", "new", str(file))
    assert (4, True) == (again.exit_code, "there already" in again.output)
    other = run("template", "new", str(tmp_path / "mine.json.tmpl"))
    assert (4, True) == (other.exit_code, "call it *.yaml.tmpl" in other.output)
    assert 4 == run("template", "new", str(tmp_path / "mine.txt")).exit_code
    assert 4 == run("template", "new", str(tmp_path / "no" / "mine.yaml.tmpl")).exit_code


def test_questions_and_template_and_states_are_given_once(tmp_path: Path) -> None:
    questions = tmp_path / "q.yaml"
    questions.write_text("q: {type: noul, instructions: So}")
    asked = ("-q", str(questions))
    for arguments in (("-t", "incident_triage", *asked), (*asked, "-v", "a=b", "x"), ("x",)):
        assert 4 == run("decide", *arguments).exit_code


@pytest.mark.parametrize("name", [template.name for template in packaged()])
def test_lint_finds_nothing_in_a_packaged_template(name: str, tmp_path: Path) -> None:
    template = next(each for each in packaged() if each.name == name)
    body = template.render(template.example)
    del body["state"]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(body))
    assert 0 == run("lint", str(file)).exit_code


@pytest.mark.parametrize("name", [template.name for template in packaged()])
@pytest.mark.usefixtures("gemma")  # makes the files, or skips
def test_every_option_of_a_packaged_template_is_its_own_label(name: str, tmp_path: Path) -> None:
    """Each is one token of Gemma's vocabulary, and no neighbour has the same."""
    template = next(each for each in packaged() if each.name == name)
    body = template.render(template.example)
    del body["state"]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(body))
    report = json.loads(run("lint", str(file), "--tokenizer", str(MADE), "-o", "json").output)
    asked = [question for group in report["groups"] for question in group["questions"]]
    assert set(body["questions"]) == {question["id"] for question in asked}
    assert ([], []) == (report["warnings"], [question["id"] for question in asked if question["aliases"]])
