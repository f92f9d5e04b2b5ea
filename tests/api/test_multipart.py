"""Images as parts of a multipart body: what comes through to the backend, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from structured_server.core.reads import Image
from tests.api.conftest import Start
from tests.fake_backend import FakeBackend
from tests.golden.requests import TRIAGE

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LARGE = b"\xff\xd8\xff" + bytes(range(256)) * 5000  # large enough for a file on its way
ASKED = json.dumps(
    {"state": "naïve, Ελλάδα 🚀", "questions": TRIAGE, "read": {"samples": 1}}, ensure_ascii=False
)


@pytest.fixture
def seeing() -> FakeBackend:
    """A backend that sees images."""
    return FakeBackend(images=True)


@pytest.fixture
async def client(start: Start, seeing: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server before it."""
    async with start(seeing) as client:
        yield client


async def _send(client: httpx.AsyncClient, *parts: tuple[str, Any], **settings: Any) -> httpx.Response:
    return await client.post("/decide", files=list(parts), **settings)


@pytest.mark.parametrize("name", ["picture.png", None], ids=["a file", "a field"])
async def test_images_come_through_byte_for_byte(
    client: httpx.AsyncClient, seeing: FakeBackend, name: str | None
) -> None:
    """Clients name no file where the bytes come from none."""
    reply = await _send(
        client, ("one", (name, PNG)), ("request", (None, ASKED)), ("two", (name, LARGE, "image/png"))
    )
    assert 200 == reply.status_code, reply.text
    (request,) = seeing.batches[-1]
    assert (Image("image/png", PNG), Image("image/jpeg", LARGE)) == request.prompt.images
    assert "naïve, Ελλάδα 🚀" in {segment.text for segment in request.prompt.segments}


async def test_the_order_of_the_parts_counts_and_their_names_do_not(
    client: httpx.AsyncClient, seeing: FakeBackend
) -> None:
    parts = [("a", ("a.png", PNG)), ("a", ("b.jpg", LARGE))]
    for each in (parts, parts[::-1]):
        assert 200 == (await _send(client, ("request", (None, ASKED)), *each)).status_code
    first, second = (batch[0].prompt.images for batch in seeing.batches)
    assert first == second[::-1]


@pytest.mark.parametrize("charset", ["utf-16", "idna", "base64", "nonsense"])
async def test_a_charset_that_the_client_names_moves_nothing(
    client: httpx.AsyncClient, seeing: FakeBackend, charset: str
) -> None:
    body = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name, data)
        for name, data in ((b"request", ASKED.encode()), (b"one", PNG))
    )
    headers = {"Content-Type": f"multipart/form-data; charset={charset}; boundary=x"}
    reply = await client.post("/decide", content=body + b"--x--\r\n", headers=headers)
    assert 200 == reply.status_code, reply.text
    assert (Image("image/png", PNG),) == seeing.batches[-1][0].prompt.images


@pytest.mark.parametrize(
    ("parts", "status", "path"),
    [
        ([("request", (None, ASKED)), ("Straße", ("a.png", b"GIF8"))], 422, ["Straße"]),
        ([("one", ("a.png", PNG))], 400, []),
        ([("request", (None, ASKED)), *[("one", ("a.png", PNG))] * 9], 422, ["images"]),
        ([("request", (None, ASKED)), *[("one", ("a.png", PNG))] * 40], 400, []),
    ],
    ids=["no image", "no request", "nine images", "too many parts"],
)
async def test_what_is_no_request_with_images_is_refused(
    client: httpx.AsyncClient, parts: list[tuple[str, Any]], status: int, path: list[str]
) -> None:
    reply = await _send(client, *parts)
    assert (status, path) == (reply.status_code, reply.json()["error"].get("path") or [])


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=other", 'multipart/form-data; boundary="x']
)
async def test_a_body_that_is_no_form_is_refused(client: httpx.AsyncClient, kind: str) -> None:
    reply = await client.post("/decide", content=ASKED.encode(), headers={"Content-Type": kind})
    assert 400 == reply.status_code


@pytest.mark.parametrize("cut", [1, 5, 9, 1000])
async def test_a_form_that_breaks_off_is_refused_not_answered_without_its_last_image(
    client: httpx.AsyncClient, cut: int
) -> None:
    """Nor does it leave a file open, which would be a warning here."""
    request = client.build_request(
        "POST", "/decide", files=[("request", (None, ASKED)), ("one", ("a.jpg", LARGE))]
    )
    body = (await request.aread())[: -cut - len(b"--\r\n")]
    headers = {"Content-Type": request.headers["content-type"]}
    reply = await client.post("/decide", content=body, headers=headers)
    assert 400 == reply.status_code
    assert "breaks off" in reply.json()["error"]["message"]
