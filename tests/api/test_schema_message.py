"""Chat whose system message holds questions: the answers in the names of vLLM's example server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from structured_server.core.reads import Image
from tests.api.asking import CHAT, TOKENIZER, believing, prompts
from tests.api.conftest import serving
from tests.fake_backend import FakeBackend

URGENT = {"id": "urgent", "type": "noul", "instructions": "Wake somebody?"}
TEAM = {
    "id": "team",
    "type": "choice",
    "options": ["networking", {"name": "billing", "description": "invoices"}],
}
SEVERITY = {"id": "severity", "type": "score", "instructions": "How bad?", "levels": ["none", "low", "high"]}
ALL: tuple[dict[str, Any], ...] = (URGENT, TEAM, SEVERITY)
PNG = b"\x89PNG\r\n\x1a\n pixels"
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.fixture
def backend() -> FakeBackend:
    """A backend that is sure of yes, networking and low."""
    return FakeBackend(images=True, chat=True, max_steps=8, logprob=believing("yes", "networking", "low"))


@pytest.fixture
async def client(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server before it."""
    async with serving(backend, TOKENIZER) as client:
        yield client


def asking(*questions: dict[str, Any], state: Any = "502 spike", **fields: Any) -> dict[str, Any]:
    """Return a chat request whose system message asks these questions."""
    said = json.dumps({"questions": list(questions or ALL), **fields})
    messages = [{"role": "system", "content": said}, {"role": "user", "content": state}]
    return {"model": "whatever", "messages": messages}


async def answered(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the completion, and what its content holds."""
    reply = await client.post(CHAT, json=body)
    assert 200 == reply.status_code, reply.text
    completion = reply.json()
    return completion, json.loads(completion["choices"][0]["message"]["content"])


async def test_the_answers_are_the_content_of_a_chat_completion(client: httpx.AsyncClient) -> None:
    completion, content = await answered(client, asking())
    assert ("chat.completion", "dgemma") == (completion["object"], completion["model"])
    (choice,) = completion["choices"]
    assert (0, "assistant", "stop") == (choice["index"], choice["message"]["role"], choice["finish_reason"])
    usage = completion["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert 3 == usage["completion_tokens"]
    assert {"answers", "diagnostics"} == content.keys()
    assert ["urgent", "team", "severity"] == list(content["answers"])


async def test_each_type_has_the_fields_of_the_example_server(client: httpx.AsyncClient) -> None:
    _, content = await answered(client, asking(samples=1))
    urgent, team, severity = content["answers"].values()
    common = {"type", "label", "confidence", "probabilities"}
    assert common | {"noul"} == urgent.keys()
    assert common | {"choice"} == team.keys()
    assert common | {"score", "level"} == severity.keys()
    assert ("yes", "networking", "low") == (urgent["label"], team["choice"], severity["level"])
    assert ["yes", "no"] == list(urgent["probabilities"])
    assert ["networking", "billing"] == list(team["probabilities"])
    assert ["none", "low", "high"] == list(severity["probabilities"])
    for each in (urgent, team, severity):
        assert max(each["probabilities"].values()) == each["confidence"]
        assert 1 == pytest.approx(sum(each["probabilities"].values()), abs=1e-9)


async def test_a_score_counts_from_one(client: httpx.AsyncClient) -> None:
    _, content = await answered(client, asking(SEVERITY))
    answer = content["answers"]["severity"]
    expected = sum(index * p for index, p in enumerate(answer["probabilities"].values(), 1))
    assert expected == pytest.approx(answer["score"], abs=1e-12)
    assert 2 == pytest.approx(answer["score"], abs=1e-3)


async def test_several_draws_tell_their_spread(client: httpx.AsyncClient) -> None:
    _, content = await answered(client, asking(samples=3))
    for each in content["answers"].values():
        assert {"stderr", "agreement"} < each.keys()
        assert 0 == pytest.approx(each["stderr"], abs=1e-9)
        assert 1 == each["agreement"]


@pytest.mark.parametrize(
    ("other", "wanted", "was"),
    [("urgent", "no", "yes"), ("team", "billing", "networking"), ("severity", "high", "low")],
)
async def test_a_question_that_is_not_asked_is_null_and_the_reason_is_told_in_words(
    client: httpx.AsyncClient, backend: FakeBackend, other: str, wanted: str, was: str
) -> None:
    waiting = {"id": "carrier", "type": "bool", "instructions": "Call them?", "ask_if": {other: [wanted]}}
    later = {"id": "later", "type": "bool", "instructions": "And then?", "ask_if": {"carrier": ["yes"]}}
    _, content = await answered(client, asking(*ALL, waiting, later))
    assert [None, None] == [content["answers"][name] for name in ("carrier", "later")]
    assert {
        "carrier": {"because": other, "was": was, "wanted": [wanted]},
        "later": {"because": "carrier", "was": None, "wanted": ["yes"]},
    } == content["diagnostics"]["skipped"]
    assert not any("Call them?" in text for text in prompts(backend))


async def test_questions_are_read_together_by_their_names(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    completion, content = await answered(client, asking(steps=2))
    assert "none" == completion["x_decision"]["reading"]["isolate"]
    assert [["urgent", "team", "severity"]] == content["diagnostics"]["chunks"]
    assert [["urgent", "team", "severity"]] == content["diagnostics"]["stages"]
    assert 2 == content["diagnostics"]["steps"]
    assert {"urgent", "team", "severity"} == content["diagnostics"]["questions"].keys()
    assert "Question severity" in prompts(backend)[0]


async def test_questions_may_be_read_apart(client: httpx.AsyncClient) -> None:
    completion, content = await answered(client, asking(isolate="all"))
    assert "all" == completion["x_decision"]["reading"]["isolate"]
    assert [["urgent"], ["team"], ["severity"]] == content["diagnostics"]["chunks"]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("502 spike", "502 spike"),
        ('{"alert": "502"}', '{"alert": "502"}'),
        ("", ""),
        ([{"type": "text", "text": "502"}, {"type": "text", "text": " spike"}], "502 spike"),
    ],
)
async def test_the_state_is_the_users_message_as_it_is(
    client: httpx.AsyncClient, backend: FakeBackend, state: Any, shown: str
) -> None:
    await answered(client, asking(state=state))
    segments = backend.batches[0][0].prompt.segments
    assert [shown] == [each.text for each in segments if each.kind.name == "STATE"]


@pytest.mark.parametrize("url", [URL, {"url": URL, "detail": "low"}])
async def test_image_parts_go_to_the_model(client: httpx.AsyncClient, backend: FakeBackend, url: Any) -> None:
    state = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": url}]
    await answered(client, asking(state=state))
    assert (Image("image/png", PNG),) == backend.batches[0][0].prompt.images


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_the_system_message_may_be_parts_and_come_from_the_developer(
    client: httpx.AsyncClient, role: str
) -> None:
    body = asking()
    body["messages"][0] = {
        "role": role,
        "content": [{"type": "text", "text": body["messages"][0]["content"]}],
    }
    _, content = await answered(client, body)
    assert 3 == len(content["answers"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (asking() | {"messages": asking({"type": "noul"})["messages"]}, "questions.0.id"),
        (asking({"id": "a", "type": "box"}), "questions.0.type"),
        (asking({"id": "a", "type": "choice", "options": "xy"}), "questions.0.options"),
        (asking({"id": "a", "type": "noul"}), "questions.a.instructions"),
        (asking(URGENT, URGENT), "questions.urgent"),
        (asking(samples=0), "samples"),
        (asking(ask=["nobody"]), "ask.0"),
    ],
)
async def test_what_is_wrong_with_the_questions_is_told_by_its_place_in_the_message(
    client: httpx.AsyncClient, body: dict[str, Any], param: str
) -> None:
    reply = await client.post(CHAT, json=body)
    assert (400, f"messages.0.content.{param}") == (reply.status_code, reply.json()["error"]["param"])


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"image_url": "https://example.com/cat.png"}, "messages.1.content.0.image_url"),
        ({"image_url": {"url": 3}}, "messages.1.content.0.image_url"),
        ({}, "messages.1.content.0.image_url"),
    ],
)
async def test_what_is_no_image_is_refused(
    client: httpx.AsyncClient, part: dict[str, Any], param: str
) -> None:
    reply = await client.post(CHAT, json=asking(state=[{"type": "image_url", **part}]))
    assert (400, param) == (reply.status_code, reply.json()["error"]["param"])


async def test_more_images_than_a_request_may_have_are_refused(client: httpx.AsyncClient) -> None:
    state = [{"type": "image_url", "image_url": URL}] * 9
    reply = await client.post(CHAT, json=asking(state=state))
    assert (400, "messages.1") == (reply.status_code, reply.json()["error"]["param"])
