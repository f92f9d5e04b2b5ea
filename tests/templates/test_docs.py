"""What docs/templates.md shows works as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from structured_server.templates import TemplateError, packaged, parse
from structured_server.templates.go_instead import INSTEAD
from structured_server.templates.jinja import FILTERS

PAGE = (Path(__file__).parents[2] / "docs" / "templates.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [block for language, block in BLOCKS if language == "bash"]
MINE, OLD = (block for language, block in BLOCKS if not language)


def run(block: str, folder: Path, url: str = "") -> str:
    """Run a block as a reader would, in a shell that stops at a failure, and return what it prints."""
    environ = {"STRUCTURED_SERVER_URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    made = subprocess.run(
        ["/bin/bash", "-e", "-c", block],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode in (0, 3), made.stderr  # 3: answered, and something undecided
    return made.stdout


def test_the_first_commands_end_with_a_decision(embedded_url: str, tmp_path: Path) -> None:
    said = run(COMMANDS[0], tmp_path, embedded_url)
    assert all(template.name in said for template in packaged())
    assert "sentiment" in said.rpartition("}\n")[2]


def test_the_template_that_is_written_there_works(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml.tmpl").write_text(MINE)
    said = run(COMMANDS[1], tmp_path)
    assert 'ticket: what the customer wrote, such as "I cannot log in"' in said
    body = yaml.safe_load(said.rpartition("}\n")[2])
    state = {"ticket": 'He said "no"', "product": "any", "history": ["rang on Monday"]}
    assert {"state": state, "questions": body["questions"]} == body


def test_variables_come_in_the_ways_of_the_page(tmp_path: Path) -> None:
    first, second = run(COMMANDS[2], tmp_path).split("\n}\n")[:2]
    assert {"alert": "HTTP 502 spike on checkout", "service": "checkout"} == json.loads(first + "}")["state"]
    assert "I cannot log in since noon\n" == json.loads(second + "}")["state"]


def test_the_go_template_of_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "old.json.tmpl").write_text(OLD)
    body = json.loads(run(COMMANDS[3], tmp_path))
    assert ('He said "no"', "Is it urgent?") == (body["state"], body["questions"]["urgent"]["instructions"])


def test_every_packaged_template_stands_in_the_table_with_its_questions_and_variables() -> None:
    for template in packaged():
        asks = ", ".join(template.render(template.example)["questions"])
        names = ", ".join(f"`{each.name}`" for each in template.variables)
        assert f"| `{template.name}` | {asks} | {names} |" in PAGE


def test_what_the_page_says_go_writes_is_refused_and_what_it_says_jinja_writes_is_read() -> None:
    table = PAGE.rpartition("| Go | Jinja |\n")[2].partition("\n\n")[0].replace("\\|", "|")
    rows = [
        [re.findall(r"`([^`]+)`", cell) for cell in re.split(r" \| (?=`|the )", row.strip("|"))]
        for row in table.splitlines()[1:]
    ]
    assert 8 == len(rows)
    for go, jinja in rows:
        for each in go:
            if "{{" not in each:
                assert each in INSTEAD
                continue
            with pytest.raises(TemplateError, match=r"line 1.*(Jinja says|in Jinja write)"):
                parse("t", "t.json.tmpl", each)
        for each in jinja:
            if "{" in each:
                parse(
                    "t",
                    "t.json.tmpl",
                    each + ("{% endif %}" if each.count("{%") == 1 and "if" in each else ""),
                )
            else:
                assert each.partition("(")[0] in (*FILTERS, "tojson")
