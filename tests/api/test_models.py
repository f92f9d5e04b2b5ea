"""The list of models, ids of requests, keys and unknown paths, as each format's clients see them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from structured_server.api.paths import CHAT, DECISIONS, MODELS, SYSTEMONE
from tests.api.asking import decisions, system_one
from tests.api.conftest import Start, serving
from tests.fake_backend import FakeBackend
from tests.golden.record import Recorder


def chat() -> dict[str, Any]:
    """Return a request for text to be written."""
    return {"model": "dgemma", "messages": [{"role": "user", "content": "Hello."}]}


BODIES: dict[str, Any] = {
    **dict.fromkeys(SYSTEMONE, system_one()),
    **dict.fromkeys(DECISIONS, decisions()),
    **dict.fromkeys(CHAT, chat()),
}


@pytest.mark.parametrize("path", MODELS)
async def test_the_served_model_is_listed_in_the_shapes_of_both_kinds_of_clients(
    start: Start, path: str
) -> None:
    before = datetime.now(UTC)
    async with start(model_alias=("triage", "jev-9")) as client:
        reply = await client.get(path)
    listed = reply.json()
    assert (200, "list") == (reply.status_code, listed["object"])
    names = ["dgemma", "triage", "jev-9"]
    assert names == [each["id"] for each in listed["data"]]
    assert names == [each["name"] for each in listed["models"]]
    for model, theirs in zip(listed["data"], listed["models"], strict=True):
        assert {"id", "object", "created", "owned_by"} == model.keys()
        assert ("model", int) == (model["object"], type(model["created"]))
        assert 0 <= model["created"] - int(before.timestamp()) < 60
        assert {"name", "description", "release_date"} == theirs.keys()
        assert all(isinstance(value, str) for value in theirs.values())
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", theirs["release_date"])


async def test_the_list_stays_as_it_is(client: httpx.AsyncClient) -> None:
    first, second = [(await client.get("/v1/models")).json() for _ in range(2)]
    assert first == second


@pytest.mark.parametrize("model", ["dgemma", "triage"])
async def test_every_format_answers_to_an_alias_with_the_served_models_name(start: Start, model: str) -> None:
    question = {"a": {"type": "noul", "instructions": "Is it?"}}
    async with start(FakeBackend(), model_alias=("triage",)) as client:
        for path, body in (
            ("/v1/systemone", system_one()),
            ("/v1/decisions", decisions()),
            ("/decide", {"state": "x", "questions": question}),
        ):
            reply = await client.post(path, json={**body, "model": model})
            assert (200, "dgemma") == (reply.status_code, reply.json()["model"])


# Ids

ANSWERS = [
    ("POST", "/v1/systemone", system_one(), 200),
    ("POST", "/v1/systemone", system_one(state=3), 422),
    ("POST", "/v1/systemone", system_one(model="gpt-9"), 404),
    ("POST", "/v1/decisions", decisions(), 200),
    ("POST", "/v1/decisions", decisions(input=3), 400),
    ("POST", "/v1/chat/completions", {"messages": 3}, 400),
    ("POST", "/decide", {}, 422),
    ("GET", "/v1/models", None, 200),
    ("GET", "/v1/nowhere", None, 404),
    ("GET", "/nowhere", None, 404),
    ("GET", "/v1/systemone", None, 405),
    ("DELETE", "/v1/decisions", None, 405),
    ("POST", "/v1/models", {}, 405),
    ("GET", "/live", None, 200),
    ("GET", "/metrics", None, 200),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), ANSWERS)
async def test_every_answer_carries_its_id_for_both_kinds_of_clients(
    client: httpx.AsyncClient, method: str, path: str, body: Any, status: int
) -> None:
    ids = set()
    for headers in ({}, {"x-request-id": "mine-7"}, {"x-request-id": "not usable \t"}):
        reply = await client.request(method, path, json=body, headers=headers)
        assert status == reply.status_code, reply.text
        assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"]
        ids.add(reply.headers["x-request-id"])
    assert "mine-7" in ids
    assert 3 == len(ids)


async def test_an_unforeseen_error_carries_its_id_and_tells_nothing() -> None:
    backend = FakeBackend()
    backend.failures = {number: ZeroDivisionError("secret") for number in range(9)}
    async with serving(backend) as client:
        for path, body in (("/v1/systemone", system_one()), ("/v1/decisions", decisions())):
            reply = await client.post(path, json=body)
            assert 500 == reply.status_code
            assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"]
            assert "secret" not in reply.text
            assert ({"detail"} if "systemone" in path else {"error"}) == reply.json().keys()


# Paths that there are not


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("path", ["/v1/nowhere", "/v1/", "/v1/systemone/x"])
async def test_an_unknown_path_is_not_found_in_system_ones_shape(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    reply = await client.request(method, path)
    assert (404, {"detail": "Not Found"}) == (reply.status_code, reply.json())


@pytest.mark.parametrize("path", SYSTEMONE)
async def test_a_method_that_is_not_for_a_path_is_said_with_those_that_are(
    client: httpx.AsyncClient, path: str
) -> None:
    reply = await client.get(path)
    assert (405, "POST") == (reply.status_code, reply.headers["allow"])
    assert {"detail": "Method Not Allowed"} == reply.json()


# Keys


@pytest.mark.parametrize(
    ("path", "missing", "wrong"),
    [
        *((path, 403, 401) for path in SYSTEMONE),
        *((path, 401, 401) for path in (*DECISIONS, *CHAT)),
        ("/v1/nowhere", 403, 401),
        ("/decide", 401, 403),
    ],
)
async def test_a_key_that_is_missing_or_wrong_has_the_formats_own_status(
    start: Start, path: str, missing: int, wrong: int
) -> None:
    """Before the body is read: what stands in it plays no part."""
    recorder = Recorder()
    async with start(recorder, api_key=("right",)) as client:
        for headers, status in (
            ({}, missing),
            ({"Authorization": "Basic cmlnaHQ="}, missing),
            ({"Authorization": "Bearer "}, missing),
            ({"Authorization": "Bearer wrong"}, wrong),
        ):
            for body in (BODIES.get(path, {}), {"nonsense": True}):
                reply = await client.post(path, json=body, headers=headers)
                assert status == reply.status_code
                assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"]
                assert "wrong" not in reply.text.replace("wrong_key", "")
                said = reply.json()
                if path in SYSTEMONE:
                    assert "authentication_error" == said["detail"]["error_type"]
                elif path in (*DECISIONS, *CHAT):
                    assert ("authentication_error", "invalid_api_key") == (
                        said["error"]["type"],
                        said["error"]["code"],
                    )
        assert [] == recorder.bodies
        if path in (*SYSTEMONE, *DECISIONS):
            reply = await client.post(path, json=BODIES[path], headers={"Authorization": "Bearer right"})
            assert 200 == reply.status_code


@pytest.mark.parametrize("path", MODELS)
async def test_the_list_of_models_asks_for_a_key_too(start: Start, path: str) -> None:
    async with start(api_key=("right",)) as client:
        replies = [await client.get(path, headers=each) for each in ({}, {"Authorization": "Bearer right"})]
    assert [401, 200] == [reply.status_code for reply in replies]


async def test_whatever_authorization_says_is_ignored_where_there_are_no_keys(
    client: httpx.AsyncClient,
) -> None:
    for said in ("Bearer x", "Basic y", "nonsense"):
        for path, body in (("/v1/systemone", system_one()), ("/v1/decisions", decisions())):
            reply = await client.post(path, json=body, headers={"Authorization": said})
            assert 200 == reply.status_code
