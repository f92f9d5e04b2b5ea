"""What a query becomes as a request's body asks just what it asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.conditions import Conditions
from structured_server.core.plan import ReadOptions
from structured_server.core.policy import ByType, ReadPolicy
from structured_server.core.questions import Choice, Limits, Noul, Schema
from structured_server.core.reads import Image
from structured_server.driver import Query
from structured_server.wire.decide_asking import questions_of, read_of, unsaid_of
from structured_server.wire.decide_request import DecideRequest
from tests.core.strategies import quick, staged_schemas

SCHEMA = Schema((("a", Noul("?")),))
shares = st.none() | st.floats(0, 1)
limits = st.builds(Limits, shares, shares, shares)
numbers = st.floats(0.01, 100)
by_type = st.builds(ByType, numbers, numbers, numbers)
read_options = st.builds(
    ReadOptions,
    layout=st.sampled_from(["schema_first", "document_first"]),
    template=st.sampled_from(["json", "lines"]),
    keys=st.sampled_from(["auto", "named", "neutral"]),
    isolate=st.sampled_from(["none", "noul", "all", "auto"]),
    rotate=st.booleans(),
    steps=st.integers(1, 8),
    constrained=st.booleans(),
    think=st.integers(0, 4096),
)
policies = st.builds(
    ReadPolicy,
    samples=st.just("auto") | st.integers(1, 32),
    entropy_thresholds=by_type,
    max_reads=st.none() | st.integers(1, 4096),
    temperatures=by_type,
)


def query(schema: Schema = SCHEMA, **more: Any) -> Query:
    """Return a query that is plain but for what is given."""
    plain: dict[str, Any] = {
        "state": "s", "options": ReadOptions(), "policy": ReadPolicy(), "seed": 0, "deadline_s": 8.0
    }  # fmt: skip
    return Query(schema=schema, **plain | more)


def asked_again(query: Query) -> DecideRequest:
    """Return the request that the query becomes."""
    body = {"state": query.state, "questions": questions_of(query.schema), "read": read_of(query)}
    return DecideRequest.model_validate_json(json.dumps(body))


@quick
@given(staged_schemas(), st.data())
def test_questions_come_back_as_they_were(schema: Schema, data: st.DataObject) -> None:
    dressed = tuple(
        (
            name,
            replace(
                question,
                limits=data.draw(limits),
                aliases=data.draw(st.sampled_from([(), ((question.options[0].key, "Yep"),)])),
            ),
        )
        for name, question in schema.questions
    )
    schema = replace(schema, questions=dressed)
    try:
        json.dumps(questions_of(schema), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # half a character: no body of ours can hold it, so that no query can either
    assert schema == asked_again(query(schema)).schema_of_questions()


@quick
@given(read_options, policies, st.integers(-(2**70), 2**70), st.sampled_from(["reject", "head", "middle"]))
def test_how_to_read_comes_back_whatever_the_servers_defaults_are(
    options: ReadOptions, policy: ReadPolicy, seed: int, long_state: Any
) -> None:
    others = ReadPolicy(entropy_thresholds=ByType.same(3.0), temperatures=ByType.same(9.0))
    again = asked_again(
        query(options=options, policy=policy, seed=seed, long_state=long_state, require_draws=True)
    )
    assert options == again.read_options(ReadOptions())
    assert policy == again.read_policy(others)
    assert (seed, long_state, True) == (again.seed, again.long_state, again.require_draws)


def test_answers_that_are_waited_for_are_said_as_keys() -> None:
    conditions = Conditions(("a",), (("a", ("true",)),), alone=True)
    schema = Schema((("a", Noul("?")), ("b", Choice(None, (("x", None), ("y", "z")), conditions=conditions))))
    said = questions_of(schema)["b"]
    assert {
        "type": "choice", "criteria": {"x": None, "y": "z"}, "depends_on": ["a"], "ask_if": {"a": ["true"]},
        "alone": True,
    } == said  # fmt: skip


@pytest.mark.parametrize(
    ("more", "unsaid"),
    [
        ({}, []),
        ({"schema": replace(SCHEMA, context="c")}, ["instructions"]),
        ({"options": ReadOptions(rows=8, sequential=True)}, ["chunk_rows", "sequential"]),
        ({"policy": ReadPolicy(extra_draws=7)}, ["auto_max"]),
        ({"policy": ReadPolicy(samples=4, extra_draws=7)}, []),
        ({"images": (Image("image/png", b"x"),)}, ["images"]),
    ],
)
def test_what_decide_has_no_word_for_is_named(more: dict[str, Any], unsaid: list[str]) -> None:
    assert unsaid == unsaid_of(query(**more))
