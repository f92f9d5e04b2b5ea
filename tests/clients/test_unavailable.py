"""What each client makes of a server that is busy or still loads, as docs/clients.md tells it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from langchain_typesafe import Noul as LangChainNoul
from langchain_typesafe import TypeSafeClassifier
from langchain_typesafe.client import TypeSafeInternalServerError as LangChainServerError
from openai import OpenAI
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.exceptions import ModelOverloadedError, ModelUnavailableError
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider
from typesafe_sdk import RetryPolicy, TypeSafeClient, TypeSafeInternalServerError

from structured_server import readiness
from structured_server.errors import Loading, Overloaded
from tests.clients.gate import refusing
from tests.clients.jev_eval import jev_eval
from tests.clients.node import Node
from tests.clients.ticket import QUESTIONS, STATE

RETRY_AFTER_S = 1
BUSY = Overloaded("there is no room.", retry_after_s=RETRY_AFTER_S)
LOADING = Loading("it loads.", retry_after_s=readiness.RETRY_AFTER_S)
WAKE: Any = {"type": "predicate", "name": "wake", "instructions": "Should we wake someone?"}


def test_the_typesafe_client_comes_back_after_retry_after(server: str) -> None:
    with refusing(BUSY, server) as gate, TypeSafeClient(base_url=gate.url, api_key="any") as client:
        assert list(QUESTIONS) == list(client.system_one(STATE, QUESTIONS).answers)
    (wait,) = gate.waits
    assert RETRY_AFTER_S <= wait


def test_the_typesafe_client_gives_up_after_two_retries(server: str) -> None:
    with (
        refusing(BUSY, server, times=9) as gate,
        TypeSafeClient(base_url=gate.url, api_key="any") as client,
        pytest.raises(TypeSafeInternalServerError) as caught,
    ):
        client.system_one(STATE, QUESTIONS)
    assert (529, "1", 3) == (caught.value.status, caught.value.headers["retry-after"], len(gate.arrivals))


def test_the_typesafe_client_does_not_wait_for_a_server_that_loads_unless_it_is_given_the_time(
    server: str,
) -> None:
    with (
        refusing(LOADING, server) as gate,
        TypeSafeClient(base_url=gate.url, api_key="any") as client,
        pytest.raises(TypeSafeInternalServerError) as caught,
    ):
        client.system_one(STATE, QUESTIONS)
    assert (503, "30", 1) == (caught.value.status, caught.value.headers["retry-after"], len(gate.arrivals))
    patient = RetryPolicy(respect_retry_after=False)
    with (
        refusing(LOADING, server) as gate,
        TypeSafeClient(base_url=gate.url, api_key="any", retry=patient) as client,
    ):
        assert list(QUESTIONS) == list(client.system_one(STATE, QUESTIONS).answers)


def test_the_openai_client_comes_back_after_retry_after(server: str) -> None:
    with refusing(BUSY, server) as gate, OpenAI(base_url=f"{gate.url}/v1", api_key="any") as client:
        decision = client.decisions.create(model="triage-demo", input=STATE, questions=[WAKE])
    assert ["wake"] == [answer.name for answer in decision.answers]
    (wait,) = gate.waits
    assert RETRY_AFTER_S <= wait


def test_the_openai_client_gives_up_after_two_retries(server: str) -> None:
    with (
        refusing(BUSY, server, times=9) as gate,
        OpenAI(base_url=f"{gate.url}/v1", api_key="any") as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.decisions.create(model="triage-demo", input=STATE, questions=[WAKE])
    assert (503, "overloaded", 3) == (caught.value.status_code, caught.value.code, len(gate.arrivals))


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
async def test_the_langchain_classifier_raises_at_once_and_is_retried_by_langchain(server: str) -> None:
    asked: Any = {
        "state": STATE,
        "questions": {"wake": LangChainNoul(instructions="Should we wake someone?")},
    }
    async with httpx2.AsyncClient() as unused:
        with refusing(BUSY, server, times=2) as gate, httpx2.Client() as client:
            classifier = TypeSafeClassifier(
                base_url=gate.url, api_key="any", client=client, async_client=unused
            )
            with pytest.raises(LangChainServerError) as caught:
                classifier.invoke(asked)
            assert (529, "1", 1) == (
                caught.value.status,
                caught.value.headers["retry-after"],
                len(gate.arrivals),
            )
            patient = classifier.with_retry(
                retry_if_exception_type=(LangChainServerError,), wait_exponential_jitter=False
            )
            assert ["wake"] == list(patient.invoke(asked).answers)


@pytest.mark.parametrize(
    ("error", "category", "status"),
    [(BUSY, ModelOverloadedError, 529), (LOADING, ModelUnavailableError, 503)],
)
async def test_pydantic_ai_raises_at_once(
    error: Overloaded | Loading, category: type[Exception], status: int, server: str
) -> None:
    with refusing(error, server) as gate:
        provider = SystemOneProvider(base_url=gate.url, api_key="any")
        async with Agent(
            SystemOneModel("jev-latest", provider=provider), output_type=bool, instructions="Wake someone?"
        ) as agent:
            with pytest.raises(category) as caught:
                await agent.run(STATE)
    assert isinstance(caught.value, ModelHTTPError)
    assert (status, 1) == (caught.value.status_code, len(gate.arrivals))


def evaluate_one_alarm(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Have jev-eval ask about one alarm."""
    (folder / "data.jsonl").write_text(json.dumps({"state": STATE, "labels": {"urgent": True}}))
    asked = ("--data", "data.jsonl", "-q", "urgent:noul", "--cache", "run.jsonl")
    return jev_eval(url, folder, "run", *asked)


def test_jev_eval_retries_a_busy_server_in_its_own_time(server: str, tmp_path: Path) -> None:
    very_busy = Overloaded("there is no room.", retry_after_s=20)
    with refusing(very_busy, server, times=2) as gate:
        assert 0 == evaluate_one_alarm(gate.url, tmp_path).returncode
    assert 3 == len(gate.arrivals)
    assert max(gate.waits) < 20


def test_jev_eval_ends_at_a_server_that_loads(server: str, tmp_path: Path) -> None:
    with refusing(LOADING, server) as gate:
        ran = evaluate_one_alarm(gate.url, tmp_path)
    assert (2, 1) == (ran.returncode, len(gate.arrivals))
    assert "503" in ran.stderr


def test_the_javascript_client_comes_back_after_retry_after(server: str, node: Node) -> None:
    asked = json.dumps({"state": STATE, "questions": QUESTIONS})
    with refusing(BUSY, server) as gate:
        answered = node.run("retry.mjs", ASKED=asked, TYPESAFE_BASE_URL=gate.url, TYPESAFE_API_KEY="any")
    assert list(QUESTIONS) == answered["answers"]
    (wait,) = gate.waits
    assert RETRY_AFTER_S <= wait


def test_the_javascript_client_gives_up_after_two_retries(server: str, node: Node) -> None:
    asked = json.dumps({"state": STATE, "questions": QUESTIONS})
    with refusing(BUSY, server, times=9) as gate:
        said = node.run("retry.mjs", ASKED=asked, TYPESAFE_BASE_URL=gate.url, TYPESAFE_API_KEY="any")
    assert ({"refused": "InternalServerError", "status": 529}, 3) == (said, len(gate.arrivals))
