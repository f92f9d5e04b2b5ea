"""Both clients against the real server: what they send, and what comes back as types."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, assert_type

import pytest
from pydantic import BaseModel, ConfigDict, Field

from structured_server.client import (
    AsyncClient,
    BadInput,
    BadQuestions,
    Choice,
    ChoiceAnswer,
    Client,
    ClientError,
    Criteria,
    Decision,
    Forbidden,
    Levels,
    NotFound,
    Noul,
    NoulAnswer,
    Score,
    ScoreAnswer,
    Unauthenticated,
)

TEAMS = ("compute", "networking", "security", "storage", "billing")
KEY = "secret"
STATE = "Border routers lost their sessions: the shop is unreachable for all customers in the region."
QUESTIONS = {
    "urgent": Noul(instructions="Should we wake an on-call engineer?"),
    "team": Choice(instructions="Which team owns the incident?", options=TEAMS),
    "severity": Score(
        instructions="How severe is customer impact?", levels=("none", "minor", "major", "critical")
    ),
}


class Severity(IntEnum):
    NONE = 0
    MINOR = 1
    MAJOR = 2
    CRITICAL = 3


class Triage(BaseModel):
    """What the demo model was taught."""

    urgent: bool = Field(description="Should we wake an on-call engineer?")
    team: Literal["compute", "networking", "security", "storage", "billing"] = Field(
        description="Which team owns the incident?"
    )
    severity: Severity = Field(description="How severe is customer impact?")


@pytest.fixture(params=["sync", "async"])
def decide(request: pytest.FixtureRequest, keyed_url: str) -> Callable[..., Decision[Any]]:
    """Decide with one client or the other."""

    def waiting(state: Any, questions: Any, **options: Any) -> Decision[Any]:
        with Client(keyed_url, token=KEY) as client:
            return client.decide(state, questions, **options)

    def on_a_loop(state: Any, questions: Any, **options: Any) -> Decision[Any]:
        async def work() -> Decision[Any]:
            async with AsyncClient(keyed_url, token=KEY) as client:
                decision: Decision[Any] = await client.decide(state, questions, **options)
                return decision

        return asyncio.run(work())

    return waiting if request.param == "sync" else on_a_loop


def test_typed_questions_get_typed_answers(decide: Callable[..., Decision[Any]]) -> None:
    decision = decide(STATE, QUESTIONS, samples=4, metadata={"incident": "I-1"})
    urgent, team, severity = (decision.answers[name] for name in QUESTIONS)
    assert isinstance(urgent, NoulAnswer)
    assert isinstance(team, ChoiceAnswer)
    assert isinstance(severity, ScoreAnswer)
    assert (True, "networking") == (urgent.answer, team.answer)
    assert 1 == pytest.approx(sum(team.probabilities.values()))
    assert team.noise is not None
    assert 4 == team.noise.draws
    assert decision.reply.metadata == {"incident": "I-1"}
    assert decision.raw["answers"]["team"]["choice"] == team.choice
    assert decision.reply.provenance is not None
    assert decision.reply.provenance.fingerprint.startswith("fp_")
    assert () == decision.undecided


def test_a_model_is_the_question_set_and_comes_back_filled(decide: Callable[..., Decision[Any]]) -> None:
    decision = decide(STATE, Triage)
    value = decision.value
    assert isinstance(value, Triage)
    assert (True, "networking") == (value.urgent, value.team)
    assert isinstance(value.severity, Severity)
    team = decision.answers["team"]
    assert team.probabilities["networking"] == team.top_probability


def test_what_is_undecided_leaves_no_value_or_none_where_that_may_be(
    decide: Callable[..., Decision[Any]],
) -> None:
    never = {"min_top_probability": 1.0}

    class Needed(BaseModel):
        team: Annotated[str, Choice(instructions="Which team?", options=TEAMS)] = Field()

    class Spared(BaseModel):
        team: Annotated[str, Choice(instructions="Which team?", options=TEAMS)] | None

    assert decide(STATE, Needed).value is not None
    unsure = {"team": {"type": "choice", "criteria": dict.fromkeys(TEAMS), "abstain": never}}
    decision = decide(STATE, unsure)
    assert ("team",) == decision.undecided
    assert decision.answers["team"].answer is None
    assert "top_probability_below_min" == decision.answers["team"].reasons[0].code
    assert isinstance(decide(STATE, Spared).value, Spared)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_addresses_with_and_without_v1_are_the_same(keyed_url: str, suffix: str) -> None:
    with Client(keyed_url + suffix, token=KEY) as client:
        assert client.ready()["ready"]
        assert 1 <= len(client.models())
        assert client.decide(STATE, QUESTIONS).answers


@pytest.mark.parametrize(
    ("token", "error", "code"), [(None, Unauthenticated, "missing_key"), ("wrong", Forbidden, "wrong_key")]
)
def test_keys_that_are_missing_or_wrong_are_told_apart(
    keyed_url: str, token: str | None, error: type[ClientError], code: str
) -> None:
    with Client(keyed_url, token=token) as client, pytest.raises(error) as caught:
        client.decide(STATE, QUESTIONS)
    assert code == getattr(caught.value, "code", None)
    assert "secret" not in str(caught.value)


def test_wrong_input_is_told_by_the_field_and_what_would_be_right(keyed_url: str) -> None:
    with Client(keyed_url, token=KEY) as client:
        with pytest.raises(BadInput) as caught:
            client.decide(STATE, {"team": Choice(options=["one"])})
        assert ("questions", "team", "criteria") == caught.value.path
        assert 422 == caught.value.status
        assert "noul" in (caught.value.hint or "")
        assert not caught.value.retryable
        with pytest.raises(NotFound):
            client.decide(STATE, QUESTIONS, model="gpt-5")
        with pytest.raises(ValueError, match="JSON"):
            client.decide({"x": float("nan")}, QUESTIONS)
        with pytest.raises(ValueError, match="JSON"):
            client.decide({"x": object()}, QUESTIONS)


def test_many_states_keep_their_order_and_one_failure_loses_no_other(keyed_url: str) -> None:
    states = [
        STATE,
        "x " * 50_000,
        {"x": float("nan")},
        "Card charges are declined: refunds and payments fail.",
    ] * 3
    with Client(keyed_url, token=KEY) as client:
        found = client.decide_many(states, Triage, concurrency=4)

    async def on_a_loop() -> list[Any]:
        async with AsyncClient(keyed_url, token=KEY) as client:
            return [*await client.decide_many(states, Triage, concurrency=4)]

    for answers in (found, asyncio.run(on_a_loop())):
        kinds = [type(each).__name__ for each in answers]
        assert ["Decision", "BadInput", "ValueError", "Decision"] * 3 == kinds
        teams = [each.value.team for each in answers if isinstance(each, Decision) and each.value]
        assert ["networking", "billing"] * 3 == teams


def test_system_one_servers_are_asked_in_their_own_format(keyed_url: str) -> None:
    with Client(keyed_url, token=KEY, dialect="systemone") as client:
        decision = client.decide(STATE, QUESTIONS)
        team = decision.answers["team"]
        assert isinstance(team, ChoiceAnswer)
        assert "networking" == team.choice
        with pytest.raises(ValueError, match="no word for samples"):
            client.decide(STATE, QUESTIONS, samples=4)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def test_every_kind_of_field_is_the_question_that_it_looks_like() -> None:
    from structured_server.client.question_models import QuestionModel

    class Wide(BaseModel):
        plain: bool = Field(description="Wake?")
        meant: Annotated[bool, Criteria({"true": "now", "false": "later"})]
        colour: Colour = Field(description="Which?")
        kinds: Annotated[Literal["a", "b"], Criteria({"a": "first"})] = Field(description="Which?")
        level: Annotated[int, Levels("low", "high")] = Field(description="How?")
        severity: Severity | None = Field(None, description="How bad?")
        own: Annotated[bool, Noul(instructions="Really?", threshold=0.9)]
        named: bool = Field(alias="other", description="By its name?")

    asked = {name: question.body() for name, question in QuestionModel(Wide).questions.items()}
    assert {
        "plain": {"type": "noul", "instructions": "Wake?"},
        "meant": {"type": "noul", "criteria": {"true": "now", "false": "later"}},
        "colour": {"type": "choice", "instructions": "Which?", "criteria": {"red": None, "blue": None}},
        "kinds": {"type": "choice", "instructions": "Which?", "criteria": {"a": "first", "b": None}},
        "level": {"type": "score", "instructions": "How?", "criteria": ["low", "high"]},
        "severity": {
            "type": "score",
            "instructions": "How bad?",
            "criteria": ["none", "minor", "major", "critical"],
        },
        "own": {"type": "noul", "instructions": "Really?", "threshold": 0.9},
        "named": {"type": "noul", "instructions": "By its name?"},
    } == asked


class Gap(IntEnum):
    ONE = 1
    THREE = 3


@pytest.mark.parametrize("kind", [str, int, float, list[str], Gap, Literal[1, 2], bool | str, dict[str, int]])
def test_a_field_that_cannot_be_a_question_is_named(kind: Any) -> None:
    from pydantic import create_model

    from structured_server.client.question_models import QuestionModel

    model = create_model("Order", size=(kind, Field(description="?")))
    with pytest.raises(BadQuestions, match=r"Order\.size: .* cannot be a question. Use bool"):
        QuestionModel(model)


def test_a_yes_no_field_without_words_says_that_they_are_missing() -> None:
    from structured_server.client.question_models import QuestionModel

    class Silent(BaseModel):
        urgent: bool

    class Empty(BaseModel):
        model_config = ConfigDict(extra="forbid")

    with pytest.raises(BadQuestions, match=r"Silent\.urgent: nothing says what is asked"):
        QuestionModel(Silent)
    with pytest.raises(BadQuestions, match="asks nothing"):
        QuestionModel(Empty)


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host", "http://", "https://[::1"])
def test_what_is_no_address_is_refused_with_what_one_looks_like(url: str) -> None:
    with pytest.raises(ValueError, match="https://host"):
        Client(url)


def test_importing_the_client_brings_no_server_along() -> None:
    heavy = (
        "fastapi",
        "uvicorn",
        "onnxruntime",
        "tokenizers",
        "numpy",
        "prometheus_client",
        "jinja2",
    )
    code = "import sys, structured_server.client; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set() == {name for name in loaded if name.startswith(heavy)}


def check_types(client: Client, asynchronous: AsyncClient) -> None:
    """Never run: mypy holds the types that callers see."""
    assert_type(client.decide("x", Triage), Decision[Triage | None])
    assert_type(client.decide("x", QUESTIONS), Decision[None])
    assert_type(client.decide_many(["x"], Triage), list[Decision[Triage | None] | Exception])
    _: Awaitable[Decision[Triage | None]] = asynchronous.decide("x", Triage)
