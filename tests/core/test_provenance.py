"""Provenance: equal where answers are comparable, different where numbers may move."""

from __future__ import annotations

import re
from dataclasses import dataclass, make_dataclass, replace
from typing import Any

import pytest
from hypothesis import given

from structured_server.core.conditions import Conditions
from structured_server.core.plan import Capabilities, ReadOptions
from structured_server.core.policy import ByType, FittedPolicy, ReadPolicy
from structured_server.core.provenance import METHOD, fingerprint, question_set_id
from structured_server.core.provenance import _said as said
from structured_server.core.questions import Choice, Limits, Noul, Schema, Score
from tests.core.strategies import quick, schemas
from tests.core.synthetic import CAPABILITIES, plan, schema

NOUL = Noul("Is it?")
TEAM = Choice("Whose?", (("compute", None), ("billing", "invoices")))
ASKED = schema(urgent=NOUL, team=TEAM)


def print_of(
    asked: Schema = ASKED,
    options: ReadOptions = ReadOptions(),  # noqa: B008  frozen
    policy: ReadPolicy = ReadPolicy(),  # noqa: B008  frozen
    capabilities: Capabilities = CAPABILITIES,
    surroundings: tuple[str, ...] = ("vllm", "toy"),
    fitted: FittedPolicy | None = None,
) -> str:
    return fingerprint(plan(asked, options, capabilities), policy, surroundings, fitted)


def test_the_method_is_the_first() -> None:
    assert "m1" == METHOD


@quick
@given(schemas(), schemas())
def test_question_sets_have_equal_names_only_where_they_are_equal(one: Schema, other: Schema) -> None:
    assert question_set_id(one) == question_set_id(Schema(one.questions))
    assert (one == other) == (question_set_id(one) == question_set_id(other))


def test_a_question_set_keeps_its_name_from_release_to_release() -> None:
    asked = schema(urgent=NOUL, team=TEAM, severity=Score(None, ("low", "high")))
    assert "qs_4388b640" == question_set_id(asked)


@pytest.mark.parametrize(
    "other",
    [
        schema(team=TEAM, urgent=NOUL),
        schema(urgent=NOUL, teams=TEAM),
        schema(urgent=NOUL),
        schema(urgent=replace(NOUL, threshold=0.6), team=TEAM),
        schema(urgent=replace(NOUL, limits=Limits(0.5)), team=TEAM),
        schema(urgent=NOUL, team=replace(TEAM, aliases=(("compute", "A"), ("billing", "B")))),
        schema(urgent=NOUL, team=replace(TEAM, criteria=TEAM.criteria[::-1])),
        replace(ASKED, context="Only weekdays count."),
    ],
    ids=["order", "id", "fewer", "threshold", "limits", "aliases", "order of options", "context"],
)
def test_any_change_to_the_questions_moves_name_and_fingerprint(other: Schema) -> None:
    assert question_set_id(ASKED) != question_set_id(other)
    assert print_of() != print_of(other)


def test_the_same_query_has_the_same_fingerprint() -> None:
    assert print_of() == print_of(Schema(ASKED.questions))
    assert re.fullmatch(r"fp_[0-9a-f]{8}", print_of())
    assert re.fullmatch(r"qs_[0-9a-f]{8}", question_set_id(ASKED))


@pytest.mark.parametrize(
    "other",
    [
        print_of(options=ReadOptions(layout="document_first")),
        print_of(options=ReadOptions(template="lines")),
        print_of(options=ReadOptions(keys="neutral")),
        print_of(options=ReadOptions(isolate="all")),
        print_of(options=ReadOptions(scaffold="canvas")),
        print_of(options=ReadOptions(slot_fill="mask")),
        print_of(options=ReadOptions(rotate=True)),
        print_of(options=ReadOptions(steps=2)),
        print_of(options=ReadOptions(constrained=True)),
        print_of(options=ReadOptions(think=64)),
        print_of(options=ReadOptions(restate=True)),
        print_of(options=ReadOptions(rows=64)),
        print_of(options=ReadOptions(sequential=True)),
        print_of(policy=ReadPolicy(extra_draws=5)),
        print_of(replace(ASKED, context="Only weekdays count.")),
        print_of(schema(urgent=NOUL, team=replace(TEAM, conditions=Conditions(("urgent",))))),
        print_of(schema(urgent=NOUL, team=replace(TEAM, conditions=Conditions(alone=True)))),
        print_of(policy=ReadPolicy(max_reads=4)),
        print_of(policy=ReadPolicy(temperatures=ByType(1, 2, 1))),
        print_of(fitted=FittedPolicy("ours", "fp_00000000")),
        print_of(fitted=FittedPolicy("ours", "fp_00000000", thresholds=ByType.same(0.2))),
        print_of(policy=ReadPolicy(samples=4)),
        print_of(policy=ReadPolicy(entropy_thresholds=ByType.same(0.2))),
        print_of(capabilities=Capabilities((64,), None, None)),
        print_of(surroundings=("vllm", "another tokenizer")),
        print_of(surroundings=("vl", "lmtoy")),
        print_of(surroundings=("vllm", "toy", "")),
    ],
)
def test_whatever_moves_numbers_moves_the_fingerprint(other: str) -> None:
    assert print_of() != other


def test_the_same_widths_of_other_groups_have_another_fingerprint() -> None:
    """A cap of 8 label ids parts six, four and four ids as 1 + 2 questions, a cap of 10 as 2 + 1."""
    levels = Score("How bad?", ("none", "low", "high"))
    asked = schema(a=levels, b=NOUL, c=TEAM)
    low, high = (Capabilities((64,), cap, None) for cap in (8, 10))
    groups = [[group.identifiers for group in plan(asked, ReadOptions(), cap).groups] for cap in (low, high)]
    assert [[("a",), ("b", "c")], [("a", "b"), ("c",)]] == groups
    assert print_of(asked, capabilities=low) != print_of(asked, capabilities=high)


def test_what_limits_nothing_here_moves_nothing() -> None:
    assert print_of() == print_of(capabilities=replace(CAPABILITIES, max_label_ids=127, max_model_len=4096))


def test_a_decision_keeps_its_fingerprint_from_release_to_release() -> None:
    assert "fp_7cf269a5" == print_of()
    other = ReadOptions(isolate="all", think=3)
    assert "fp_635e8332" == print_of(options=other, policy=ReadPolicy(samples=4))


@dataclass(frozen=True)
class _Policy:
    """Stands for whatever moves numbers, as it is today."""

    samples: int
    lead: bool = False


_LATER = make_dataclass(
    "_Policy", [("samples", int), ("lead", bool, False), ("extra", int | None, None)], frozen=True
)


@pytest.mark.parametrize("values", [(1,), (1, True), (2,)])
def test_a_new_field_renames_nothing_as_long_as_it_has_its_default(values: tuple[Any, ...]) -> None:
    known, later = _Policy(*values), _LATER(*values)
    assert said(known) == said(later)
    assert said([known, (known,)]) == said([later, (later,)])
    assert said(known) != said(replace(later, extra=3))


def test_a_field_without_a_default_is_always_said() -> None:
    assert "_Policy(samples=1)" == said(_Policy(1))
    assert 3 == len({said(each) for each in (_Policy(1), _Policy(0), _Policy(1, True))})
