"""What the canary is asked: a request as anybody sends it, with answers that its questions can have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.api.canary import canary_of
from structured_server.api.service import Service, assemble
from structured_server.canary_file import load_known
from structured_server.core.questions import Choice, Noul, Score
from structured_server.errors import SettingsError
from structured_server.settings import Settings
from tests.fake_backend import FakeBackend
from tests.toy import ToyTokenizer

GOOD: dict[str, Any] = {
    "state": "a pump",
    "questions": {
        "urgent": {"type": "noul", "instructions": "Is it?"},
        "team": {"type": "choice", "criteria": {"networking": None, "storage": None}},
        "severity": {"type": "score", "criteria": ["low", "high"]},
    },
    "expect": {"urgent": False, "team": "storage", "severity": 1},
}


def written(folder: Path, content: object) -> str:
    file = folder / "canary.yaml"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def service(**settings: Any) -> Service:
    return assemble(
        Settings(upstream="http://engine", model="fake", **settings), ToyTokenizer(), FakeBackend()
    )


def test_the_built_in_one_has_one_question_of_each_type_and_an_answer_for_each() -> None:
    known = load_known("")
    questions = dict(known.asked.schema_of_questions().questions)
    assert {Noul, Choice, Score} == {type(question) for question in questions.values()}
    assert questions.keys() == known.expected.keys()
    assert {"urgent": "true", "team": "networking", "severity": "3"} == known.expected


def test_it_is_read_from_json_and_from_yaml(tmp_path: Path) -> None:
    known = load_known(written(tmp_path, GOOD))
    assert {"urgent": "false", "team": "storage", "severity": "1"} == known.expected
    assert "a pump" == known.asked.state_text()
    yaml = """
state: a pump
questions:
  urgent: {type: noul, instructions: "Is it?"}
  team: {type: choice, criteria: {networking: null, storage: null}}
  severity: {type: score, criteria: [low, high]}
expect: {urgent: no, team: storage, severity: 1}
"""
    assert known == load_known(written(tmp_path, yaml))


def changed(**fields: Any) -> Mapping[str, Any]:
    return {name: value for name, value in (GOOD | fields).items() if value is not None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the body "),
        ("[]", "the body "),
        ("state: [", "is neither JSON nor YAML"),
        ("state: 2026-01-01", "holds what JSON cannot"),
        ("state: .nan", "holds what JSON cannot"),
        (changed(expect=None), "expect is required"),
        (changed(expect={}), "expect "),
        (changed(state=None), "state is required"),
        (changed(expected={}), "expected is no field that is known here"),
        (changed(expect={"urgent": 0.5}), "expect.urgent "),
        (changed(expect={"other": True}), "expect.other is no question of this request"),
        (changed(expect={"team": "billing"}), "expect.team is an answer that this question cannot have"),
        (changed(expect={"severity": 2}), "expect.severity is an answer that this question cannot have"),
        (changed(questions={"urgent": {"type": "choice", "criteria": {}}}), "questions.urgent.criteria "),
        (changed(images=["data:nothing"]), "images"),
    ],
)
def test_a_file_that_is_no_such_request_is_refused_with_its_name_and_the_place(
    tmp_path: Path, content: object, message: str
) -> None:
    file = written(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        load_known(file)
    assert caught.value.message.startswith(f"--canary {file}")
    assert message in caught.value.message


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_known(str(tmp_path / "missing.yaml"))


@given(st.text(max_size=80))
def test_any_file_is_a_request_or_a_wrong_setting(content: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "canary.yaml"
        file.write_bytes(content.encode("utf-8", "surrogatepass"))
        with pytest.raises(SettingsError):
            load_known(str(file))


def test_a_server_takes_its_file_and_refuses_one_about_another_model(tmp_path: Path) -> None:
    assert canary_of(service(canary=written(tmp_path, GOOD)))
    other = written(tmp_path, GOOD | {"model": "another"})
    with pytest.raises(SettingsError, match="names a model that is not served here"):
        canary_of(service(canary=other))
    assert None is canary_of(service(canary_s=0, canary=other))


def test_a_model_that_always_says_the_first_option_or_the_last_is_found_out() -> None:
    known = load_known("")
    for place in (0, -1):
        said = {name: each.options[place].key for name, each in known.asked.schema_of_questions().questions}
        assert said != known.expected


def test_the_example_in_the_documentation_is_such_a_file(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (example,) = re.findall(
        r"```yaml\n(.*?)```", page.partition("\n## Canary\n")[2].partition("\n## ")[0], re.DOTALL
    )
    assert {"refund": "true", "about": "billing"} == load_known(written(tmp_path, example)).expected
