"""Compressed bodies: as good as plain ones, and never more than the limit, whatever they would come to."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.api.encodings import WINDOW_LOG, decoder
from structured_server.errors import BodyTooLarge, MalformedBody
from tests.api.conftest import Start
from tests.core.strategies import quick
from tests.fake_backend import FakeBackend
from tests.golden.requests import TRIAGE

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ASKED = json.dumps({"state": "502 spike", "questions": TRIAGE, "read": {"samples": 1}}).encode()
SYSTEM_ONE = json.dumps(
    {
        "model": "jev-latest",
        "state": "502 spike",
        "questions": {"a": {"type": "noul", "instructions": "Is it?"}},
    }
).encode()
LIMIT = 64 * 1024
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))

Compress = Callable[[bytes], bytes]
COMPRESS: dict[str, Compress] = {"gzip": gzip.compress, "zstd": zstd.compress}
encodings = pytest.mark.parametrize("encoding", list(COMPRESS))


def zeros(encoding: str, mebibytes: int) -> bytes:
    """Return so many zeros compressed, made piece by piece."""
    piece = bytes(2**20)
    if encoding == "gzip":
        gzipping = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
        return b"".join(gzipping.compress(piece) for _ in range(mebibytes)) + gzipping.flush()
    zstding = zstd.ZstdCompressor()
    return b"".join(zstding.compress(piece) for _ in range(mebibytes)) + zstding.flush()


def windowed(data: bytes, window_log: int) -> bytes:
    """Return a zstd frame that tells nothing of its size, so that its window stands."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    return compressor.compress(data) + compressor.flush()


def decoded(encoding: str, data: bytes, pieces: int, limit: int = LIMIT) -> bytes:
    """Feed a body in pieces of about equal size."""
    decoding = decoder(encoding, limit)
    size = max(1, -(-len(data) // pieces))
    came = b"".join(decoding.feed(data[at : at + size]) for at in range(0, len(data), size))
    decoding.end()
    return came


async def sent(
    client: httpx.AsyncClient, path: str, body: bytes, encoding: str, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(path, content=body, headers={"Content-Encoding": encoding, **named})


# The decoder


@quick
@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.integers(1, 50),
    st.sampled_from(list(COMPRESS)),
)
def test_frames_one_after_the_other_decode_to_their_contents_in_whatever_pieces_they_come(
    contents: list[bytes], pieces: int, encoding: str
) -> None:
    body = b"".join(map(COMPRESS[encoding], contents))
    assert b"".join(contents) == decoded(encoding, body, pieces)


@quick
@given(st.binary(min_size=1, max_size=300), st.integers(1, 9), st.sampled_from(list(COMPRESS)), st.data())
def test_a_body_that_breaks_off_is_noticed_wherever_it_does(
    content: bytes, pieces: int, encoding: str, data: st.DataObject
) -> None:
    body = COMPRESS[encoding](content)
    cut = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(MalformedBody, match=f"the body's {encoding} breaks off"):
        decoded(encoding, body[:cut], pieces)


@quick
@given(st.binary(min_size=1, max_size=200), st.sampled_from(list(COMPRESS)))
def test_any_bytes_decode_or_are_refused_as_malformed(garbage: bytes, encoding: str) -> None:
    try:
        came = decoded(encoding, garbage, 3)
    except MalformedBody:
        return
    assert len(came) <= LIMIT


@encodings
def test_garbage_behind_a_whole_body_is_refused(encoding: str) -> None:
    with pytest.raises(MalformedBody):
        decoded(encoding, COMPRESS[encoding](ASKED) + b"garbage!", 1)


@encodings
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_body_may_come_to_as_many_bytes_as_the_limit_and_not_one_more(
    encoding: str, over: int, pieces: int
) -> None:
    content = bytes(range(256)) * (LIMIT // 256) + bytes(over)
    body = COMPRESS[encoding](content)
    if not over:
        assert content == decoded(encoding, body, pieces)
        return
    with pytest.raises(BodyTooLarge, match=f"more than {LIMIT} bytes"):
        decoded(encoding, body, pieces)


@encodings
def test_the_limit_counts_all_frames_together(encoding: str) -> None:
    with pytest.raises(BodyTooLarge):
        decoded(encoding, COMPRESS[encoding](bytes(LIMIT // 2 + 1)) * 2, 1)


@encodings
def test_a_bomb_is_refused_without_being_decompressed(encoding: str) -> None:
    """Of 64 MiB of zeros, what is held at a time stays near the limit."""
    bomb = zeros(encoding, 64)
    assert len(bomb) < 2**17
    decoding = decoder(encoding, LIMIT)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            decoding.feed(bomb)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * LIMIT


def test_a_window_may_be_as_large_as_every_decoder_must_hold_and_not_larger() -> None:
    assert ASKED == decoded("zstd", windowed(ASKED, WINDOW_LOG), 1)
    assert 8 * 2**20 == 1 << WINDOW_LOG
    with pytest.raises(MalformedBody):
        decoded("zstd", windowed(ASKED, WINDOW_LOG + 1), 1)


# Over HTTP


@encodings
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/decide", ASKED),
        ("/v1/systemone", SYSTEM_ONE),
        ("/v1/decisions", SYSTEM_ONE),
    ],
)
async def test_a_compressed_body_is_answered_as_a_plain_one_is(
    client: httpx.AsyncClient, path: str, body: bytes, encoding: str
) -> None:
    plain = await client.post(path, content=body)
    halves = body[: len(body) // 2], body[len(body) // 2 :]
    for compressed in (COMPRESS[encoding](body), b"".join(map(COMPRESS[encoding], halves))):
        reply = await sent(client, path, compressed, encoding)
        assert 200 == reply.status_code, reply.text
        assert plain.json()["answers"] == reply.json()["answers"]


@pytest.mark.parametrize("name", ["GZIP", "x-gzip", " gzip ", "Zstd", "identity", ""])
async def test_an_encoding_is_known_in_whatever_case_it_is_named(
    client: httpx.AsyncClient, name: str
) -> None:
    compress = COMPRESS.get(name.strip().lower().removeprefix("x-"), bytes)
    assert 200 == (await sent(client, "/decide", compress(ASKED), name)).status_code


@encodings
async def test_a_compressed_batch_is_answered_line_by_line(client: httpx.AsyncClient, encoding: str) -> None:
    head = json.dumps({"questions": TRIAGE, "read": {"samples": 1}}).encode()
    lines = b"\n".join([head, b'{"state": "one"}', b'{"state": "two"}'])
    reply = await sent(
        client,
        "/decide/batch",
        COMPRESS[encoding](lines),
        encoding,
        content_type="application/x-ndjson",
    )
    assert 200 == reply.status_code, reply.text
    assert {"ok": 2, "failed": 0}.items() <= json.loads(reply.text.splitlines()[-1]).items()


@encodings
async def test_a_compressed_multipart_body_gives_its_images(start: Start, encoding: str) -> None:
    plain = httpx.Request(
        "POST", "http://test", files=[("request", (None, ASKED)), ("a", ("a.png", PNG, "image/png"))]
    )
    seeing = FakeBackend(images=True)
    async with start(seeing) as client:
        reply = await sent(
            client,
            "/decide",
            COMPRESS[encoding](plain.read()),
            encoding,
            content_type=plain.headers["content-type"],
        )
    assert 200 == reply.status_code, reply.text
    assert [PNG] == [image.data for image in seeing.batches[0][0].prompt.images]


@pytest.mark.parametrize("name", ["br", "deflate", "gzip, gzip", "zstd;q=1", "compress", "x"])
@pytest.mark.parametrize("path", ["/decide", "/decide/batch", "/v1/systemone", "/v1/decisions"])
async def test_another_encoding_is_refused_before_the_body_is_read(
    client: httpx.AsyncClient, path: str, name: str
) -> None:
    reply = await sent(client, path, ASKED, name)
    assert 415 == reply.status_code
    assert "gzip or zstd" in reply.text


WRONG: dict[str, Callable[[Compress], bytes]] = {
    "cut": lambda compress: compress(ASKED)[:-9],
    "plain": lambda _: ASKED,
    "garbage behind": lambda compress: compress(ASKED) + b"garbage!",
}


@encodings
@pytest.mark.parametrize("how", list(WRONG))
@pytest.mark.parametrize(
    ("path", "status"),
    [("/decide", 400), ("/decide/batch", 400), ("/v1/systemone", 422), ("/v1/decisions", 400)],
)
async def test_a_body_that_is_not_what_it_says_is_malformed(
    client: httpx.AsyncClient, path: str, status: int, how: str, encoding: str
) -> None:
    reply = await sent(client, path, WRONG[how](COMPRESS[encoding]), encoding)
    assert status == reply.status_code
    assert encoding in reply.text


@encodings
async def test_the_limit_holds_for_what_a_body_comes_to_and_for_what_comes(
    start: Start, encoding: str
) -> None:
    async with start(max_body_bytes=2048) as client:
        fits = await sent(client, "/decide", COMPRESS[encoding](ASKED.ljust(2048)), encoding)
        assert 200 == fits.status_code
        for body in (COMPRESS[encoding](ASKED.ljust(2049)), zeros(encoding, 8)):
            reply = await sent(client, "/decide", body, encoding)
            assert (413, "body_too_large") == (reply.status_code, reply.json()["error"]["code"])


@encodings
async def test_frames_without_content_go_on_no_longer_than_the_limit(start: Start, encoding: str) -> None:
    """They come to nothing, however many they are."""
    async with start(max_body_bytes=2048) as client:
        reply = await sent(client, "/decide", COMPRESS[encoding](b"") * 1000, encoding)
        assert 413 == reply.status_code


@encodings
async def test_an_empty_compressed_body_is_no_json(client: httpx.AsyncClient, encoding: str) -> None:
    replies: list[Any] = [
        await sent(client, "/decide", body, encoding) for body in (b"", COMPRESS[encoding](b""))
    ]
    assert [(400, "invalid_json")] * 2 == [
        (reply.status_code, reply.json()["error"]["code"]) for reply in replies
    ]
