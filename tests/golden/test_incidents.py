"""The eight incidents' questions in the vocabulary that they are meant for."""

from __future__ import annotations

from pathlib import Path

import yaml

from structured_server.core.plan import Capabilities, Group, ReadOptions, compile_plan
from structured_server.core.tokens import Tokenizer
from structured_server.wire.decide_request import DecideRequest

QUESTIONS = Path(__file__).parents[2] / "examples" / "incident_triage" / "questions.yaml"


def _group(tokenizer: Tokenizer, options: ReadOptions) -> Group:
    questions = yaml.safe_load(QUESTIONS.read_text("utf-8"))
    schema = DecideRequest.model_validate({"state": "", "questions": questions}).schema_of_questions()
    (group,) = compile_plan(schema, options, Capabilities((16, 32, 48, 64), 128, None), tokenizer).groups
    return group


def test_three_questions_fit_a_canvas_of_16(gemma: Tokenizer) -> None:
    """Thirteen tokens of compact JSON, the turn's end, and two tokens of padding."""
    canvas = _group(gemma, ReadOptions()).canvas
    assert 16 == canvas.width
    read = [gemma.token_text(token) for token in canvas.ids]
    assert [
        *('{"', "urgent", '":"', "yes", '","'),
        *("team", '":"', "compute", '","'),
        *("severity", '":"', "none", '"}'),
        *("<turn|>", "<eos>", "<eos>"),
    ] == read
    assert (3, 7, 11) == canvas.positions


def test_every_label_is_its_own_word_and_has_its_spaced_variant(gemma: Tokenizer) -> None:
    group = _group(gemma, ReadOptions())
    for asked, slot in zip(group.asked, group.canvas.slots, strict=True):
        assert {} == asked.aliases
        for label, ids in zip(asked.labels, slot.options, strict=True):
            assert {label, f" {label}"} == {gemma.token_text(token) for token in ids}
    assert 22 == len(group.canvas.label_ids)


def test_with_the_scaffold_in_the_canvas_it_takes_32(gemma: Tokenizer) -> None:
    canvas = _group(gemma, ReadOptions(scaffold="canvas")).canvas
    assert 32 == canvas.width
    assert gemma.scaffold == canvas.ids[: len(gemma.scaffold)]
    assert (7, 11, 15) == canvas.positions
