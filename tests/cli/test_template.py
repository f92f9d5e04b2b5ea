"""`structured-server template`, and deciding by a template with the embedded model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from structured_server.templates import packaged
from tests.proxy import launch_proxy


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


@pytest.fixture(scope="module")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the embedded model."""
    proxy = launch_proxy(
        tmp_path_factory.mktemp("embedded") / "log", ("--backend", "embedded", "--log-level", "warning")
    )
    try:
        proxy.wait_until_ready()
        yield proxy.url
    finally:
        proxy.stop()


@pytest.mark.parametrize("name", [template.name for template in packaged()])
def test_each_packaged_template_is_answered(embedded_url: str, name: str) -> None:
    template = next(each for each in packaged() if each.name == name)
    flags = [flag for each in template.variables for flag in ("-v", f'{each.name}=He said "no"')]
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
        (("-v", "alert=@/nowhere"), "cannot read /nowhere"),
        (("-d", "/nowhere"), "cannot read /nowhere"),
        ((), "needs alert"),
        (("-v", "alert=x", "-v", "alerts=y"), "did you mean alert?"),
    ],
)
def test_what_is_wrong_with_variables_exits_with_4(arguments: tuple[str, ...], said: str) -> None:
    for command in (("template", "render", "incident_triage"), ("decide", "-t", "incident_triage")):
        result = run(*command, *arguments)
        assert (4, True) == (result.exit_code, said in result.output), result.output


def test_templates_are_listed_and_shown() -> None:
    listed = run("template", "list").output
    assert all(template.name in listed for template in packaged())
    shown = run("template", "show", "incident_triage").output
    assert "service (may be left out): the service" in shown
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
