"""The refreshing clients of docs/clients.md, word for word, through the front end to a server with a key."""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import typesafe_sdk
from langchain_typesafe import Noul as LangChainNoul
from langchain_typesafe import TypeSafeClassifier
from openai import OpenAI
from pydantic_ai import Agent
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider
from typesafe_sdk import AsyncTypeSafeClient, TypeSafeClient

from tests.clients.conftest import KEY
from tests.clients.documented import PROGRAMS, write
from tests.clients.front import LIFETIME_S, OWN_HEADER, Front, iam_front
from tests.clients.node import Node
from tests.clients.ticket import QUESTIONS, STATE

WAKE: Any = {"type": "predicate", "name": "wake", "instructions": "Should we wake someone?"}


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keyed_server: str) -> Iterator[Front]:
    """A front end before a server with a key, and the environment and folder of a program that calls it."""
    write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with iam_front(keyed_server) as front:
        monkeypatch.setenv("GCE_METADATA_HOST", front.metadata.removeprefix("http://"))
        monkeypatch.setenv("SERVICE_URL", front.url)
        monkeypatch.setenv("TYPESAFE_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield front
    sys.modules.pop("identity", None)


def outlive(front: Front) -> None:
    """Wait until every token that was minted so far has ended."""
    end = time.monotonic() + 2 * LIFETIME_S
    while any(front.minter.accepts(token, front.url) for token in front.minter.minted):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_page_shows_all_programs_that_are_run_here() -> None:
    python = {"identity.py", "with_typesafe.py", "with_openai.py"}
    assert {*python, "identity.mjs", "with_typesafe.mjs"} == set(PROGRAMS)


def test_the_documented_typesafe_client_outlives_its_token(front: Front, tmp_path: Path) -> None:
    with runpy.run_path(str(tmp_path / "with_typesafe.py"))["client"] as client:
        for _ in range(2):
            assert list(QUESTIONS) == list(client.system_one(STATE, QUESTIONS).answers)
        outlive(front)
        assert list(QUESTIONS) == list(client.system_one(STATE, QUESTIONS).answers)
    assert len(front.minter.minted) >= 2


async def test_the_documented_async_typesafe_client_outlives_its_token(front: Front, tmp_path: Path) -> None:
    async with runpy.run_path(str(tmp_path / "with_typesafe.py"))["async_client"] as client:
        assert list(QUESTIONS) == list((await client.system_one(STATE, QUESTIONS)).answers)
        outlive(front)
        assert list(QUESTIONS) == list((await client.system_one(STATE, QUESTIONS)).answers)
    assert 2 == len(front.minter.minted)


def test_the_documented_openai_client_outlives_its_token(front: Front, tmp_path: Path) -> None:
    with runpy.run_path(str(tmp_path / "with_openai.py"))["client"] as client:
        for wait in (False, True):
            if wait:
                outlive(front)
            decision = client.decisions.create(model="triage-demo", input=STATE, questions=[WAKE])
            assert ["wake"] == [answer.name for answer in decision.answers]
    assert 2 == len(front.minter.minted)


async def test_the_documented_async_openai_client_outlives_its_token(front: Front, tmp_path: Path) -> None:
    async with runpy.run_path(str(tmp_path / "with_openai.py"))["async_client"] as client:
        for wait in (False, True):
            if wait:
                outlive(front)
            decision = await client.decisions.create(model="triage-demo", input=STATE, questions=[WAKE])
            assert ["wake"] == [answer.name for answer in decision.answers]
    assert 2 == len(front.minter.minted)


def test_the_documented_javascript_client_outlives_its_token(front: Front, node: Node) -> None:
    write(node.folder)
    said = node.run("through_front.mjs", OUTLIVE_MS=str(1000 * LIFETIME_S + 100))
    assert [["billing", "networking"]] * 3 == said
    assert len(front.minter.minted) >= 2


def test_a_token_is_kept_until_it_is_nearly_over(
    front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    token = runpy.run_path(str(tmp_path / "identity.py"))["IdentityToken"](front.url)
    for elapsed, minted in ((0.0, 1), (0.85, 1), (0.95, 2)):
        request = httpx2.Request("GET", front.url)
        life = int(now + LIFETIME_S) - now
        monkeypatch.setattr(time, "time", lambda elapsed=elapsed, life=life: now + elapsed * life)
        token(request)
        assert f"Bearer {front.minter.minted[-1]}" == request.headers[OWN_HEADER]
        assert minted == len(front.minter.minted)


def test_a_token_that_is_not_renewed_ends_in_each_clients_authentication_error(front: Front) -> None:
    fixed = {OWN_HEADER: f"Bearer {front.minter.mint(front.url)}"}
    with (
        TypeSafeClient(base_url=front.url, headers=fixed) as typesafe,
        OpenAI(base_url=f"{front.url}/v1", default_headers=fixed) as client,
    ):
        assert typesafe.models.list().models
        assert client.models.list().data
        outlive(front)
        with pytest.raises(typesafe_sdk.TypeSafeAuthenticationError) as refused:
            typesafe.models.list()
        assert (None, True) == (refused.value.request_id, refused.value.body.startswith("<html>"))
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


async def test_without_a_token_the_front_end_refuses_what_the_server_would_take(front: Front) -> None:
    no_key = httpx2.Client(event_hooks={"request": [lambda request: request.headers.pop("authorization")]})
    with (
        TypeSafeClient(base_url=front.url, http_client=no_key) as client,
        pytest.raises(typesafe_sdk.TypeSafePermissionDeniedError),
    ):
        client.models.list()
    async with AsyncTypeSafeClient(base_url=front.url) as with_key:
        with pytest.raises(typesafe_sdk.TypeSafeAuthenticationError):
            await with_key.models.list()
    assert [] == front.minter.minted


def test_a_wrong_key_behind_a_good_token_is_the_servers_own_refusal(front: Front) -> None:
    token = {OWN_HEADER: f"Bearer {front.minter.mint(front.url)}"}
    with (
        TypeSafeClient(base_url=front.url, api_key="wrong", headers=token) as client,
        pytest.raises(typesafe_sdk.TypeSafeAuthenticationError) as refused,
    ):
        client.system_one(STATE, QUESTIONS)
    assert refused.value.request_id
    assert "authentication_error" == refused.value.body["detail"]["error_type"]


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
async def test_langchain_and_pydantic_ai_take_the_same_hook(front: Front, tmp_path: Path) -> None:
    token = runpy.run_path(str(tmp_path / "identity.py"))["IdentityToken"](front.url)
    async with httpx2.AsyncClient(event_hooks={"request": [token.in_async]}) as async_client:
        with httpx2.Client(event_hooks={"request": [token]}) as client:
            classifier = TypeSafeClassifier(base_url=front.url, client=client, async_client=async_client)
            asked: Any = {
                "state": STATE,
                "questions": {"wake": LangChainNoul(instructions="Should we wake someone?")},
            }
            assert classifier.invoke(asked).answers == (await classifier.ainvoke(asked)).answers
        provider = SystemOneProvider(base_url=front.url, api_key=KEY, http_client=async_client)
        model = SystemOneModel("jev-latest", provider=provider)
        answer = await Agent(model, output_type=bool, instructions="Should we wake someone?").run(STATE)
    assert isinstance(answer.output, bool)
