"""Images of System One and Decisions: where they stand, in which order they go, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from structured_server.core.reads import Image
from structured_server.wire.decisions_answer import DecisionsResponse
from structured_server.wire.fields import MAX_IMAGES
from structured_server.wire.systemone_answer import SystemOneResponse
from tests.api.asking import (
    DECISIONS,
    PREDICATE,
    SYSTEM_ONE,
    TEAM,
    TOKENIZER,
    answered,
    decided,
    decisions,
    system_one,
)
from tests.api.conftest import serving
from tests.fake_backend import FakeBackend

PNG, GIF, JPEG = (
    Image("image/png", b"\x89PNG\r\n\x1a\n pixels"),
    Image("image/gif", b"GIF89a pixels"),
    Image("image/jpeg", b"\xff\xd8\xff pixels"),
)


def encoded(image: Image) -> str:
    return base64.b64encode(image.data).decode()


def asset(image: Image, **fields: Any) -> dict[str, Any]:
    return {"type": "image", "format": "png", "data_base64": encoded(image), **fields}


def url_of(image: Image) -> str:
    return f"data:{image.media_type};base64,{encoded(image)}"


def shown(backend: FakeBackend) -> str:
    """Return the text of the last prompt."""
    return "".join(segment.text for segment in backend.batches[-1][0].prompt.segments)


def seen(backend: FakeBackend) -> tuple[Image, ...]:
    """Return the images of all reads, which must be the same."""
    (images,) = {request.prompt.images for batch in backend.batches for request in batch}
    return images


@pytest.fixture
def backend() -> FakeBackend:
    """A backend that sees images."""
    return FakeBackend(images=True)


@pytest.fixture
async def client(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server before it."""
    async with serving(backend, TOKENIZER) as client:
        yield client


async def test_an_asset_goes_to_the_model_and_its_number_stands_where_its_placeholder_did(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    questions = {
        "team": {
            "type": "choice",
            "instructions": {"look at": "<map>, then <photo>"},
            "criteria": {"networking": "as on <photo>", "billing": ["not <map>"]},
        }
    }
    body = system_one(
        questions,
        state={"first": "<photo>", "all": ["<photo> and <map>", 3]},
        instructions="Compare <map>.",
        assets={"<photo>": asset(PNG), "<map>": asset(GIF)},
        samples=1,
    )
    await answered(client, body)
    assert (PNG, GIF) == seen(backend)
    text = shown(backend)
    assert '{"first":"[image 1]","all":["[image 1] and [image 2]",3]}' in text
    assert '{"look at":"[image 2], then [image 1]"}' in text
    assert "- networking: as on [image 1]" in text
    assert '- billing: ["not [image 2]"]' in text
    assert "<photo>" not in text
    assert "<map>" not in text


async def test_placeholders_that_begin_alike_or_stand_in_numbers_are_told_apart(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    assets = {"asset": asset(PNG), "asset-2": asset(GIF), "image": asset(JPEG)}
    await answered(
        client, system_one({"team": TEAM}, state="asset, asset-2, image", assets=assets, samples=1)
    )
    assert (PNG, GIF, JPEG) == seen(backend)
    assert "[image 1], [image 2], [image 3]" in shown(backend)


async def test_option_names_are_echoed_byte_for_byte_whatever_the_placeholders_are(
    client: httpx.AsyncClient,
) -> None:
    answer = await answered(client, system_one({"team": TEAM}, assets={"networking": asset(PNG)}, samples=1))
    assert list(TEAM["criteria"]) == list(answer["answers"]["team"]["probabilities"])


async def test_an_asset_may_be_a_part_of_the_body(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    """What is in no asset comes last."""
    assets = {
        "<b>": {"type": "image", "part": "asset-1"},
        "<a>": {"type": "image", "part": "asset-0"},
    }
    body = json.dumps(system_one(state="<a> <b>", assets=assets, samples=1))
    parts = [
        ("request", ("request", body.encode(), "application/json")),
        ("asset-0", ("asset-0", PNG.data, "application/octet-stream")),
        ("other", ("other", JPEG.data, "image/jpeg")),
        ("asset-1", ("asset-1", GIF.data, "image/png")),
    ]
    reply = await client.post(SYSTEM_ONE, files=parts)
    assert 200 == reply.status_code, reply.text
    SystemOneResponse.model_validate_json(reply.content)
    assert (GIF, PNG, JPEG) == seen(backend)
    assert "[image 2] [image 1]" in shown(backend)


@pytest.mark.parametrize(
    "given", [url_of(GIF), {"content_type": "image/gif", "base64": encoded(GIF)}], ids=["url", "object"]
)
async def test_images_of_the_state_come_behind_the_assets(
    client: httpx.AsyncClient, backend: FakeBackend, given: Any
) -> None:
    await answered(client, system_one(assets={"<a>": asset(PNG)}, images=[given], samples=1))
    assert (PNG, GIF) == seen(backend)


@pytest.mark.parametrize(
    ("fields", "location"),
    [
        ({"assets": {"<a>": {"type": "image"}}}, ["assets", "<a>"]),
        ({"assets": {"<a>": {"type": "video"}}}, ["assets", "<a>", "type"]),
        ({"assets": {"<a>": asset(PNG, data_base64="%")}}, ["assets", "<a>", "data_base64"]),
        ({"assets": {"<a>": asset(Image("", b"%PDF"))}}, ["assets", "<a>", "data_base64"]),
        ({"assets": {"<a>": {"type": "image", "part": "a"}}}, ["assets", "<a>", "part"]),
        ({"assets": [asset(PNG)]}, ["assets"]),
        ({"images": ["https://example.com/cat.png"]}, ["images", 0]),
        ({"images": [3]}, ["images", 0]),
        ({"images": [url_of(PNG), {"base64": encoded(PNG)}]}, ["images", 1, "content_type"]),
        ({"images": [{"content_type": "image/png", "base64": "%"}]}, ["images", 0, "base64"]),
        ({"images": [url_of(PNG)] * (MAX_IMAGES + 1)}, ["images"]),
        ({"images": [url_of(PNG)] * MAX_IMAGES, "assets": {"<a>": asset(PNG)}}, ["images"]),
    ],
)
async def test_what_is_no_image_is_told_by_its_place(
    client: httpx.AsyncClient, backend: FakeBackend, fields: dict[str, Any], location: list[Any]
) -> None:
    reply = await client.post(SYSTEM_ONE, json=system_one(**fields))
    assert 422 == reply.status_code, reply.text
    assert ["body", *location] == reply.json()["detail"][0]["loc"]
    assert [] == backend.batches


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (SYSTEM_ONE, system_one(assets={"<a>": asset(PNG)}), 422),
        (SYSTEM_ONE, system_one(images=[url_of(PNG)]), 422),
        (
            DECISIONS,
            decisions(
                input=[
                    {"role": "user", "content": [{"type": "input_image", "image_url": url_of(PNG)}]},
                ]
            ),
            400,
        ),
    ],
)
async def test_a_model_that_reads_only_text_refuses_images(
    path: str, body: dict[str, Any], status: int
) -> None:
    async with serving(FakeBackend(), TOKENIZER) as client:
        reply = await client.post(path, json=body)
    assert status == reply.status_code
    assert "images" in reply.text


# Decisions


def image_part(image: Image) -> dict[str, str]:
    return {"type": "input_image", "image_url": url_of(image)}


async def test_images_of_an_input_and_of_questions_are_numbered_as_they_stand(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    asked = {
        "type": "predicate",
        "instructions": [{"type": "input_text", "text": "It is the same as"}, image_part(GIF)],
    }
    content = [{"type": "input_text", "text": "Look:"}, image_part(PNG)]
    await decided(client, decisions(asked, input=[{"role": "user", "content": content}], samples=1))
    assert (PNG, GIF) == seen(backend)
    assert '["Look:","[image 1]"]' in shown(backend)
    assert '["It is the same as","[image 2]"]' in shown(backend)


@pytest.mark.parametrize("beside", [0, 1])
async def test_images_of_parts_count_too(client: httpx.AsyncClient, beside: int) -> None:
    content = [image_part(PNG)] * (MAX_IMAGES - 1)
    body = json.dumps(decisions(input=[{"role": "user", "content": content}], samples=1))
    parts = [("a", ("a", GIF.data))] * (1 + beside)
    reply = await client.post(DECISIONS, files=[("request", (None, body)), *parts])
    assert (400 if beside else 200) == reply.status_code, reply.text
    if not beside:
        DecisionsResponse.model_validate_json(reply.content)
    else:
        assert "input" == reply.json()["error"]["param"]


@pytest.mark.parametrize(
    ("url", "told"),
    [("https://example.com/cat.png", "data URL"), ("data:image/png;base64,%", "base64")],
)
async def test_an_address_is_no_image(client: httpx.AsyncClient, url: str, told: str) -> None:
    content = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": url}]
    for body, param in (
        (decisions(input=[{"role": "user", "content": content}]), "input.0.content.1.image_url"),
        (decisions(PREDICATE | {"instructions": content}), "questions.0.instructions.1.image_url"),
    ):
        reply = await client.post(DECISIONS, json=body)
        assert (400, param) == (reply.status_code, reply.json()["error"]["param"])
        assert told in reply.json()["error"]["message"]
