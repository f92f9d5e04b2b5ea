"""What only some backends can do, on the wire: thoughts, steps, constrained reads, images."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from structured_server.backends.vllm import VllmBackend
from structured_server.backends.vllm.messages import chat_body
from structured_server.core.reads import Image
from structured_server.errors import InvalidRequest
from structured_server.wire.decide_response import DecideResponse
from structured_server.wire.fields import MAX_IMAGES
from structured_server.wire.images import MAX_IMAGE_BYTES, checked_image, image_of
from tests.api.conftest import WORDS, serving
from tests.fake_backend import FakeBackend
from tests.fake_engine import FakeEngine
from tests.golden.requests import TRIAGE
from tests.toy import ToyTokenizer
from tests.toy_engine import ToyEngineTokenizer

ASKED: dict[str, Any] = {"state": "502 spike", "questions": TRIAGE}
PICTURES = {
    "image/png": b"\x89PNG\r\n\x1a\n pixels",
    "image/jpeg": b"\xff\xd8\xff pixels",
    "image/gif": b"GIF89a pixels",
    "image/webp": b"RIFF\x00\x01\x02\x03WEBP pixels",
}
TOKENIZER = ToyTokenizer(WORDS, scaffold=True)
THOUGHT = "the pager is down"


def able() -> FakeBackend:
    """Return a backend that can do everything."""
    return FakeBackend(
        max_steps=8, constrained=True, generation=True, images=True, thought=TOKENIZER.encode(THOUGHT)
    )


def url_of(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def backend() -> FakeBackend:
    """A backend that can do everything."""
    return able()


@pytest.fixture
async def client(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server before it."""
    async with serving(backend, TOKENIZER) as client:
        yield client


async def answered(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """Decide, and hold the answer against its documented type."""
    reply = await client.post("/decide", json=ASKED | fields)
    assert 200 == reply.status_code, reply.text
    DecideResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


# Thoughts, steps, constrained reads, shared reads


@pytest.mark.parametrize(("tokens", "closed"), [(len(THOUGHT) + 1, True), (3, False)])
async def test_a_thought_is_reported_with_its_questions_its_text_and_how_it_ended(
    client: httpx.AsyncClient, tokens: int, closed: bool
) -> None:
    answer = await answered(client, read={"think": tokens, "samples": 1})
    (thought,) = answer["reading"]["thoughts"]
    assert 0 <= thought.pop("milliseconds")
    written = THOUGHT[:tokens]
    assert {
        "questions": list(TRIAGE),
        "text": written,
        "tokens": len(written),
        "closed": closed,
    } == thought
    assert len(TRIAGE) + len(written) == answer["usage"]["output_tokens"]


async def test_without_a_thought_none_is_reported(client: httpx.AsyncClient) -> None:
    assert [] == (await answered(client))["reading"]["thoughts"]


async def test_constrained_reads_have_no_label_mass(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    answer = await answered(client, read={"constrained": True, "steps": 3})
    assert {None} == {each["label_mass"] for each in answer["answers"].values()}
    requests = [request for batch in backend.batches for request in batch]
    assert {(3, True)} == {(request.steps, request.constrained) for request in requests}


async def test_equal_requests_in_flight_share_their_reads_and_keep_what_is_their_own(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    backend.delay_s = 0.05
    metadata = [{"caller": name} for name in ("first", "second")]
    one, other = await asyncio.gather(*(answered(client, metadata=each) for each in metadata))
    assert [1, 3] == [len(batch) for batch in backend.batches]
    assert [False, True] == sorted([one["reading"]["shared"], other["reading"]["shared"]])
    assert metadata == [one["metadata"], other["metadata"]]
    assert one["answers"] == other["answers"]
    assert one["id"] != other["id"]
    assert not (await answered(client))["reading"]["shared"]


# Images


async def test_data_urls_reach_the_backend_with_the_type_of_their_content(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    """Whatever the URL says of them."""
    await answered(client, images=[url_of(data, "image/x-icon") for data in PICTURES.values()])
    images = {request.prompt.images for batch in backend.batches for request in batch}
    assert {tuple(Image(*each) for each in PICTURES.items())} == images


async def test_images_of_the_body_come_before_those_of_the_parts(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    png, gif = PICTURES["image/png"], PICTURES["image/gif"]
    body = json.dumps(ASKED | {"images": [url_of(gif)]})
    reply = await client.post("/decide", files=[("a", ("a.png", png)), ("request", (None, body))])
    assert 200 == reply.status_code, reply.text
    assert (Image("image/gif", gif), Image("image/png", png)) == backend.batches[0][0].prompt.images


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7",
        b"\x89PNG",
        b"RIFF\x00\x00\x00\x00WAVE",
        b" GIF89a",
    ],
)
async def test_what_is_no_image_by_its_content_is_refused_whatever_it_says_of_itself(
    client: httpx.AsyncClient, backend: FakeBackend, data: bytes
) -> None:
    png = url_of(PICTURES["image/png"])
    reply = await client.post("/decide", json=ASKED | {"images": [png, url_of(data)]})
    error = reply.json()["error"]
    assert (422, ["images", 1]) == (reply.status_code, error["path"])
    assert "images.1 is no PNG, JPEG, WebP or GIF." == error["message"]
    assert [] == backend.batches


@pytest.mark.parametrize("count", [MAX_IMAGES, MAX_IMAGES + 1])
async def test_as_many_images_as_allowed_are_taken_and_not_one_more(
    client: httpx.AsyncClient, count: int
) -> None:
    images = [url_of(PICTURES["image/png"])] * count
    reply = await client.post("/decide", json=ASKED | {"images": images})
    assert (200 if count == MAX_IMAGES else 422) == reply.status_code
    if reply.status_code == 422:
        assert ["images"] == reply.json()["error"]["path"]


@pytest.mark.parametrize("extra", [0, 1])
def test_an_image_may_be_as_large_as_the_limit(extra: int) -> None:
    data = PICTURES["image/png"].ljust(MAX_IMAGE_BYTES + extra, b"\0")
    if not extra:
        assert Image("image/png", data) == image_of(url_of(data), 0) == checked_image(data, ("photo",))
        return
    for read in (partial(image_of, url_of(data), 0), partial(checked_image, data, ("photo",))):
        with pytest.raises(InvalidRequest, match=f"has {len(data)} bytes; an image may have"):
            read()


async def test_an_address_is_refused_in_images_and_is_plain_text_in_a_state_and_never_called(
    client: httpx.AsyncClient,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/cat.png"
        reply = await client.post("/decide", json=ASKED | {"images": [address]})
        assert (422, ["images", 0]) == (reply.status_code, reply.json()["error"]["path"])
        assert "not fetched" in reply.json()["error"]["hint"]
        assert address not in reply.text
        await answered(client, state={"image": address})
        with pytest.raises(BlockingIOError):
            listening.accept()


async def test_images_travel_from_the_caller_to_the_engine_byte_for_byte() -> None:
    """On the chat route, in the body that the backend makes of the read."""
    async with FakeEngine(ToyEngineTokenizer(WORDS), model="dgemma", images=True) as engine:
        backend = VllmBackend(engine.url, model="dgemma", tokenizer=ToyEngineTokenizer(WORDS), canvas=64)
        async with serving(backend, ToyEngineTokenizer(WORDS)) as client:
            images = [url_of(data, media_type) for media_type, data in PICTURES.items()]
            await answered(client, images=images, read={"samples": 1})
        (seen,) = [read for read in engine.reads if len(read.body.get("messages", ())) == 2]
    user = seen.body["messages"][1]["content"]
    assert images == [part["image_url"]["url"] for part in user[:-1]]
    assert user[-1]["text"].startswith("502 spike")


async def test_a_read_with_images_is_sent_as_its_chat_body(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    """What a backend gets holds all that the chat route needs: no ids are sent there."""
    await answered(client, images=[url_of(PICTURES["image/gif"])], read={"samples": 1})
    ((request,),) = backend.batches
    body = orjson.loads(chat_body("dgemma", request, ToyEngineTokenizer().neutralise))
    assert url_of(PICTURES["image/gif"], "image/gif") == body["messages"][1]["content"][0]["image_url"]["url"]
    assert "prompt" not in body


# Whatever is asked of a backend that can do everything

FIELDS: dict[str, list[Any]] = {
    "samples": ["auto", 1, 2, 5, 32, 0, True],
    "entropy_threshold": [None, 0, 0.5, 1e308, {"noul": 0.2}, {}, -1, "x", {"choice": -1}, {"rank": 1}],
    "max_reads": [None, 1, 4, 64, 4096, 0, 4097, 2**70, 1.5],
    "temperature": [
        None,
        0.001,
        1,
        100,
        {"score": 2.5},
        {"noul": 1e308, "choice": 5e-324},
        0,
        -1,
        {"noul": 0},
        [1],
    ],
    "rotate": [True, False, None, 1],
    "steps": [1, 2, 8, 0, 9, "2", None],
    "constrained": [True, False, 0],
    "think": [0, 1, 50, 4096, -1, 4097, True],
    "long_state": ["reject", "head", "tail", "middle", "cut", None],
    "isolate": ["none", "noul", "all", "auto", "some"],
    "layout": ["schema_first", "document_first", ""],
    "seed": [0, -1, 2**63, 1e400],
}
CONDITIONS: dict[str, list[Any]] = {
    "depends_on": [
        [],
        ["urgent"],
        ["urgent", "team"],
        ["self"],
        ["nobody"],
        ["urgent", "urgent"],
        "urgent",
        [1],
    ],
    "ask_if": [
        {},
        {"urgent": [True, False]},
        {"urgent": ["true"], "team": ["networking"]},
        {"severity": [0, "1", 3]},
        {"severity": [4]},
        {"urgent": []},
        {"urgent": True},
        {"self": [True]},
        {"nobody": [True]},
        {"urgent": [2**70, 1.5, None]},
    ],
    "alone": [True, False, "yes"],
}
STATES: list[Any] = ["502 spike", "", "x" * 6000, {"alert": "502"}, ["\ue001\ue003"]]
IMAGES: list[Any] = [
    [],
    [url_of(PICTURES["image/gif"])],
    [url_of(b"GIF")],
    ["file:///etc/passwd"],
    None,
    [None],
]


def _request(random_: random.Random) -> dict[str, Any]:
    """Return a request with some fields of each kind, most of them right."""

    def some(fields: dict[str, list[Any]], share: float) -> dict[str, Any]:
        return {
            name: random_.choice(values[: -(-len(values) // 2)] if random_.random() < 0.8 else values)
            for name, values in fields.items()
            if random_.random() < share
        }

    last = {"type": "noul", "instructions": "So?"} | some(CONDITIONS, 0.5)
    questions = {**TRIAGE, "self": last}
    return {
        "state": random_.choice(STATES),
        "questions": questions if random_.random() < 0.8 else dict(reversed(questions.items())),
        "read": some(FIELDS, 0.3),
        **({"images": random_.choice(IMAGES)} if random_.random() < 0.2 else {}),
    }


@pytest.mark.parametrize("seed", range(4))
async def test_every_mixture_of_fields_gets_an_answer_of_the_documented_shape_or_is_told_where_it_is_wrong(
    seed: int,
) -> None:
    random_ = random.Random(seed)
    statuses: list[int] = []
    async with serving(able(), TOKENIZER) as client:
        for _ in range(150):
            body = _request(random_)
            reply = await client.post("/decide", content=json.dumps(body).encode())
            statuses.append(reply.status_code)
            if reply.status_code == 200:
                DecideResponse.model_validate_json(reply.content)
                continue
            error = reply.json()["error"]
            assert reply.status_code in (400, 413, 422), (body, reply.text)
            assert error["path"] or reply.status_code == 400, (body, reply.text)
            assert _is_a_place_in(body, error["path"]), (body, error)
    assert min(statuses.count(200), statuses.count(422)) > 20
    assert 413 in statuses


def _is_a_place_in(body: Any, path: list[Any]) -> bool:
    """Tell whether a path leads through the request; its last part may be missing there."""
    for index, part in enumerate(path):
        if isinstance(body, dict) and part not in body and index >= len(path) - 2:
            return True
        if not isinstance(body, dict | list):
            return False
        body = body[part]
    return True
