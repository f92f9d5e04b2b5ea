"""What the shipped model says of itself, and the questions that it owns up to not knowing."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from structured_server.backends.embedded import DemoModel, load_demo_model
from structured_server.cli.demo import incidents
from structured_server.core.policy import ByType
from structured_server.core.questions import Choice, Noul, Question, Schema, Score
from structured_server.errors import SettingsError
from structured_server.wire.decide_request import DecideRequest

TEAMS = ("compute", "networking", "security", "storage", "billing")
LEVELS = ("none", "minor", "major", "critical")


def choice(*words: str) -> Choice:
    """A choice between words."""
    return Choice(None, tuple((word, None) for word in words))


def warned(model: DemoModel, **questions: Question) -> list[str | None]:
    """Return the questions that the model warns of."""
    caveats = model.caveats(Schema(tuple(questions.items())))
    assert {"outside_demo_domain", "demo_model_limits"} >= {each.code for each in caveats}
    return [each.question for each in caveats if each.code == "outside_demo_domain"]


@pytest.mark.parametrize(
    "question",
    [
        choice(*TEAMS),
        choice(*reversed(TEAMS)),
        choice("billing", "compute"),
        choice("calm", "worried", "angry"),
        choice("angry", "calm"),
        Choice("Whose is it?", (("storage", "disks"), ("security", None))),
        Score("How bad?", LEVELS),
    ],
)
def test_options_that_were_taught_are_known_whatever_the_question_is_called(
    demo_model: DemoModel, question: Question
) -> None:
    assert [] == warned(demo_model, anything=question)


@pytest.mark.parametrize(
    "question",
    [
        choice(*TEAMS, "other"),
        choice("compute", "calm"),
        choice("Compute", "networking"),
        choice("red", "blue"),
        Score("How bad?", LEVELS[1:]),
        Score("How bad?", tuple(reversed(LEVELS))),
        Score("How bad?", ("low", "high")),
        Choice(None, (("compute", None), ("storage", None)), aliases=(("compute", "A"), ("storage", "B"))),
        Noul("Is it raining?"),
    ],
)
def test_other_options_are_not(demo_model: DemoModel, question: Question) -> None:
    assert ["anything"] == warned(demo_model, anything=question)


def test_nouls_are_known_by_their_id(demo_model: DemoModel) -> None:
    ask = Noul("?")
    assert ["rain"] == warned(demo_model, urgent=ask, customer_impact=ask, rain=ask, needs_rollback=ask)


def test_the_eight_incidents_are_its_domain(demo_model: DemoModel) -> None:
    questions, _ = incidents()
    asked = DecideRequest.model_validate({"state": "x", "questions": questions})
    assert () == replace(demo_model, notice=None).caveats(asked.schema_of_questions())


def test_a_notice_stands_in_every_answer_and_first(demo_model: DemoModel) -> None:
    model = replace(demo_model, notice="It mistakes storage for compute.")
    known, unknown = (
        [(each.code, each.question) for each in model.caveats(Schema(((name, Noul("?")),)))]
        for name in ("urgent", "rain")
    )
    assert [("demo_model_limits", None)] == known
    assert [("demo_model_limits", None), ("outside_demo_domain", "rain")] == unknown


def test_its_description_names_it_and_its_thresholds(demo_model: DemoModel) -> None:
    said = json.loads((demo_model.folder / "model.json").read_bytes())
    thresholds = asdict(demo_model.entropy_thresholds)
    assert ("triage-demo", said["entropy_thresholds"]) == (demo_model.name, thresholds)
    assert ["noul", "choice", "score"] == list(thresholds)
    assert all(0 < threshold < 2 for threshold in thresholds.values())


def test_each_type_may_have_a_threshold_of_its_own(demo_model: DemoModel, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo_model.folder, tmp_path / "copy"))
    said = json.loads((folder / "model.json").read_bytes())
    said["entropy_thresholds"] = {"noul": 0.1, "choice": 0.2, "score": 0.3}
    (folder / "model.json").write_text(json.dumps(said))
    assert ByType(0.1, 0.2, 0.3) == load_demo_model(folder).entropy_thresholds


def test_its_revision_is_that_of_its_weights(demo_model: DemoModel, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo_model.folder, tmp_path / "copy"))
    assert demo_model.revision == load_demo_model(folder).revision
    with (folder / "model.onnx").open("ab") as weights:
        weights.write(b"x")
    assert demo_model.revision != load_demo_model(folder).revision


@pytest.mark.parametrize("missing", ["model.json", "model.onnx"])
def test_a_missing_file_is_named(demo_model: DemoModel, tmp_path: Path, missing: str) -> None:
    folder = Path(shutil.copytree(demo_model.folder, tmp_path / "copy"))
    (folder / missing).unlink()
    with pytest.raises(SettingsError, match=f"not in this installation: .*{missing} cannot be read"):
        load_demo_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"name": 7},
        {"domain": {}},
        {"entropy_thresholds": {"noul": "high", "choice": 0.1, "score": 0.1}},
        {"entropy_thresholds": {"noul": 0.1}},
        {"entropy_thresholds": 0.1},
    ],
)
def test_a_description_with_something_wrong_is_refused(
    demo_model: DemoModel, tmp_path: Path, change: dict[str, object]
) -> None:
    folder = Path(shutil.copytree(demo_model.folder, tmp_path / "copy"))
    said = json.loads((folder / "model.json").read_bytes())
    (folder / "model.json").write_text(json.dumps(said | change))
    with pytest.raises(SettingsError, match=r"model\.json does not describe a model"):
        load_demo_model(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_description_that_is_none_is_refused(demo_model: DemoModel, tmp_path: Path, text: str) -> None:
    folder = Path(shutil.copytree(demo_model.folder, tmp_path / "copy"))
    (folder / "model.json").write_text(text)
    with pytest.raises(SettingsError, match=r"model\.json does not describe a model"):
        load_demo_model(folder)
