"""The HTTP client: whatever happens on the wire is a reply or one of our errors, within the time allowed."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.backends.vllm.client import Client, explain
from structured_server.backends.vllm.connections import Reply
from structured_server.backends.vllm.messages import COMPLETIONS, completion_body
from structured_server.errors import (
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from tests.backends.reads import read_request, until
from tests.fake_engine import FakeEngine, Faults

BODY = completion_body("fake", read_request())
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[str]:
    """Serve raw connections with `answer`."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def connected(url: str, timeout_s: float = 2.0) -> AsyncIterator[Client]:
    client = Client(url, timeout_s=timeout_s)
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_a_url_with_or_without_v1_reaches_the_same_engine(engine: FakeEngine, suffix: str) -> None:
    async with connected(engine.url + suffix) as client:
        assert engine.url == client.url
        assert 200 == (await client.get("/health")).status


async def test_a_password_in_the_url_is_sent_and_never_shown(engine: FakeEngine) -> None:
    async with connected(engine.url.replace("//", "//me:secret@")) as client:
        assert engine.url == client.url
        assert 200 == (await client.get("/health")).status
        await engine.stop()
        with pytest.raises(UpstreamError) as caught:
            await client.get("/health")
        assert "secret" not in caught.value.message


async def test_a_read_returns_the_body_of_a_200(client: Client) -> None:
    body = orjson.loads(await client.read(COMPLETIONS, BODY))
    assert 8 == len(body["choices"][0]["logprobs"]["tokens"])


@pytest.mark.parametrize(
    ("faults", "error", "message"),
    [
        (Faults(status=400), UpstreamRejected, "refused the read with 400"),
        (Faults(status=404), UpstreamRejected, "refused the read with 404"),
        (Faults(status=408), UpstreamFailed, "failed on the read with 408"),
        (Faults(status=429), UpstreamFailed, "failed on the read with 429"),
        (Faults(status=500), UpstreamFailed, "failed on the read with 500"),
        (Faults(status=503), UpstreamFailed, "failed on the read with 503"),
        (Faults(status=307), UpstreamFailed, "failed on the read with 307"),
        (Faults(status=204), UpstreamFailed, "failed on the read with 204"),
        (Faults(hang=True), UpstreamTimeout, "did not answer within 0.05 s"),
        (Faults(delay_s=5), UpstreamTimeout, "did not answer within 0.05 s"),
        (Faults(drip_s=0.03), UpstreamTimeout, "did not answer within 0.05 s"),
        (Faults(reset=True), UpstreamUnreachable, "broke"),
    ],
)
async def test_each_fault_has_its_error(
    engine: FakeEngine, client: Client, faults: Faults, error: type[UpstreamError], message: str
) -> None:
    engine.faults = faults
    with pytest.raises(UpstreamError) as caught:
        await client.read(COMPLETIONS, BODY, timeout_s=0.05 if error is UpstreamTimeout else None)
    assert error is type(caught.value)
    assert message in caught.value.message
    assert "fault" not in caught.value.message, "an engine's own words may quote what it was sent"


async def test_the_clients_own_timeout_holds_where_a_call_names_none(engine: FakeEngine) -> None:
    engine.faults = Faults(hang=True)
    async with connected(engine.url, timeout_s=0.03) as client:
        begun = time.monotonic()
        with pytest.raises(UpstreamTimeout):
            await client.post(COMPLETIONS, BODY)
        assert 0.03 <= time.monotonic() - begun < 1


async def test_a_timeout_frees_the_engine(engine: FakeEngine, client: Client) -> None:
    engine.faults = Faults(hang=True)
    waiting = asyncio.create_task(client.post(COMPLETIONS, BODY, timeout_s=0.2))
    await until(lambda: engine.in_flight == 1)
    with pytest.raises(UpstreamTimeout):
        await waiting
    await until(lambda: engine.in_flight == 0)
    assert 1 == engine.hung_up


async def test_a_port_where_nothing_listens_is_unreachable(engine: FakeEngine, client: Client) -> None:
    await engine.stop()
    for ask in (client.get("/health"), client.post(COMPLETIONS, BODY), client.read(COMPLETIONS, BODY)):
        with pytest.raises(UpstreamUnreachable) as caught:
            await ask
        assert f"nothing answers at {engine.url}: " in caught.value.message


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b", "http://127.0.0.1:99999"])
async def test_a_url_that_is_none_is_unreachable(url: str) -> None:
    async with connected(url) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.get("/health")


async def test_tls_to_a_plain_port_is_unreachable(engine: FakeEngine) -> None:
    async with connected(engine.url.replace("http", "https")) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.get("/health")


async def test_a_closed_client_is_unreachable(client: Client) -> None:
    await client.get("/health")
    await client.close()
    with pytest.raises(UpstreamUnreachable):
        await client.get("/health")


async def test_closing_a_client_that_never_connected_is_harmless() -> None:
    await Client("http://127.0.0.1:1", timeout_s=1).close()


# Kept-alive connections


async def test_a_connection_is_kept_for_the_next_read(engine: FakeEngine, client: Client) -> None:
    for _ in range(3):
        await client.read(COMPLETIONS, BODY)
    assert 1 == len(engine.connections)


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_stale_connection_is_replaced_and_nobody_notices(
    engine: FakeEngine, client: Client, how: str
) -> None:
    await client.read(COMPLETIONS, BODY)
    engine.faults = Faults(stale="closed" if how == "closed" else "reset")
    await client.read(COMPLETIONS, BODY)
    assert 3 == len(engine.reads), "the first read, the one that broke, and the one sent again"
    assert 2 == len(engine.connections)


async def test_a_connection_is_replaced_only_once() -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with listening(hang_up) as url, connected(url) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await client.post(COMPLETIONS, BODY)
    assert f"the engine at {url} closed the connection." == caught.value.message
    assert 2 == connections


async def test_a_reply_that_breaks_off_is_not_asked_for_again(engine: FakeEngine, client: Client) -> None:
    engine.faults = Faults(reset=True)
    with pytest.raises(UpstreamUnreachable):
        await client.post(COMPLETIONS, BODY)
    assert 1 == len(engine.reads)


# Any bytes on the wire


def answering(reply: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    return answer


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_a_malformed_reply_is_unreachable(reply: bytes) -> None:
    async with listening(answering(reply)) as url, connected(url) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.get("/health")


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nabcde",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde",
    ],
)
async def test_a_body_may_come_in_any_way_that_http_has(reply: bytes) -> None:
    async with listening(answering(reply)) as url, connected(url) as client:
        assert Reply(200, b"abcde") == await client.get("/health")


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"junk", b"HT"])
@pytest.mark.parametrize("late", [False, True])
async def test_what_nobody_has_asked_for_is_nobodys_reply(more: bytes, late: bool) -> None:
    """A reply that comes behind another one, at once or later, is never taken for the next request's."""
    right = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(right if late else right + more)
                await writer.drain()
                if late:
                    await asyncio.sleep(0.01)
                    writer.write(more)

    async with listening(answer) as url, connected(url) as client:
        for _ in range(5):
            assert Reply(200, b"right") == await client.get("/health")
            await asyncio.sleep(0.03 if late else 0)


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structured_server.backends.vllm.connections.KEPT_S", 0.1)
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        with suppress(ConnectionError):
            assert b"" == await reader.read()
        writer.close()
        ended.set()

    async with listening(answer) as url, connected(url) as client:
        await client.get("/health")
        assert not ended.is_set()
        async with asyncio.timeout(2):
            await ended.wait()


async def test_tls_is_spoken_to_who_has_a_right_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert 0 == await made.wait()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    reply = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde")
    server = await asyncio.start_server(reply, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"https://localhost:{port}") as client:
            with pytest.raises(UpstreamUnreachable):
                await client.get("/health")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with connected(f"https://localhost:{port}") as client:
            assert Reply(200, b"abcde") == await client.get("/health")


async def test_a_redirect_is_not_followed() -> None:
    reply = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with listening(answering(reply)) as url, connected(url) as client:
        assert 302 == (await client.get("/health")).status
        with pytest.raises(UpstreamFailed):
            await client.read(COMPLETIONS, BODY)


heads = st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 500 \r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b""])
headers = st.sampled_from(
    [
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Encoding: deflate\r\n",
        b"Content-Encoding: br\r\n",
        b"Set-Cookie: \xff=;;\r\n",
        b"Location: http://[\r\n",
        b"Content-Type: text/html; charset=klingon\r\n",
        b": \r\n",
    ]
)


@given(
    replies=st.lists(
        st.tuples(heads, st.lists(headers, max_size=3), st.sampled_from([b"\r\n", b""]), st.binary()),
        min_size=1,
        max_size=5,
    )
)
def test_any_bytes_on_the_wire_are_a_reply_or_an_upstream_error(
    replies: list[tuple[bytes, list[bytes], bytes, bytes]],
) -> None:
    async def scenario() -> None:
        for head, fields, gap, body in replies:
            answer = answering(head + b"".join(fields) + gap + body)
            async with listening(answer) as url, connected(url) as client:
                with suppress(UpstreamError):
                    assert isinstance(await client.post(COMPLETIONS, b"{}"), Reply)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(503, b""), "503"),
        (Reply(400, b'{"error": {"message": "no such route"}}'), "400 (no such route)"),
        (Reply(400, orjson.dumps({"error": {"message": "x" * 999}})), f"400 ({'x' * 200})"),
    ],
)
def test_a_reply_explains_itself_briefly(reply: Reply, text: str) -> None:
    assert text == explain(reply)
