"""What is shipped is what was judged: the evaluation's figures, its page, and the package agree."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "triage"
PACKAGE = ROOT / "structured_server" / "data" / "triage"


def _figures() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((MODEL / "evaluation.json").read_text("utf-8"))
    return figures


def _described() -> dict[str, Any]:
    described: dict[str, Any] = json.loads((PACKAGE / "model.json").read_text("utf-8"))
    return described


def test_the_shipped_thresholds_are_those_that_validation_chose() -> None:
    chosen = _figures()["entropy_thresholds"]
    types = {"noul": "urgent", "choice": "team", "score": "severity"}
    assert {kind: chosen[name] for kind, name in types.items()} == _described()["entropy_thresholds"]


def test_the_page_is_made_of_the_figures() -> None:
    judging: Any = importlib.import_module("judging")
    assert (MODEL / "EVALUATION.md").read_text("utf-8") == judging.report(_figures())


def test_a_missed_gate_is_said_in_every_answer_and_in_the_readme() -> None:
    judging: Any = importlib.import_module("judging")
    missed = [what for what, _, _, holds in judging.gate(_figures()) if not holds]
    notice = _described().get("notice") or ""
    assert bool(missed) == bool(notice)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert bool(missed) == ("demo_model_limits" in readme)


def test_the_package_and_the_checkpoint_have_one_tokenizer() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (MODEL / "checkpoint" / name).read_bytes() == (PACKAGE / name).read_bytes()
