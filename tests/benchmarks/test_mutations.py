"""Mutated requests: the short form of the run, and that the run would notice what it looks for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from benchmarks.mutants import Mutant, mutant
from benchmarks.mutants.bodies import ROUTES
from benchmarks.mutations import Address, Reply, main, run, show, what_is_wrong
from tests.fake_backend import FakeBackend
from tests.serving import serving_http

SEED = 20
SENT = Mutant("/decide", "none", b"", frozenset({504}), damaged=False, head_only=False)


def _address(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


@contextmanager
def answering(reply: bytes) -> Iterator[Address]:
    """Listen, say this much to whoever sends something, and hang up."""
    loop = asyncio.new_event_loop()
    listening: list[Address] = []
    up, end = threading.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 20)
        writer.write(reply)
        writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            listening.append(server.sockets[0].getsockname())
            up.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    up.wait()
    try:
        yield listening[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_six_hundred_mutants_are_all_answered(capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend(max_steps=8, constrained=True, generation=True, chat=True, images=True)
    with serving_http(backend) as url:
        report = asyncio.run(run(_address(url), seed=SEED, indices=iter(range(600)), connections=8))
    show(report, seed=SEED, seconds=1.0)
    assert [] == report.findings
    assert {"200", "400", "413", "422"} <= report.statuses.keys()
    assert set(ROUTES) == {path for path, kind in report.by_route if kind == "2xx"}
    assert "600 requests" in capsys.readouterr().out


def test_a_mutant_can_be_made_again_by_its_number() -> None:
    first = [mutant(SEED, index) for index in range(300)]
    assert first[::-1] == [mutant(SEED, index) for index in reversed(range(300))]
    assert first != [mutant(SEED + 1, index) for index in range(300)]


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        (Reply(200, "application/json", b"{}", closes=False), False),
        (Reply(422, "application/json", b"{}", closes=False), False),
        (Reply(400, "text/plain", b"no HTTP", closes=True), False),
        (Reply(504, "application/json", b"{}", closes=False), False),
        (Reply(500, "application/json", b"{}", closes=False), True),
        (Reply(503, "application/json", b"{}", closes=False), True),
        (Reply(529, "application/json", b"{}", closes=False), True),
        (Reply(422, "application/json", b"{", closes=False), True),
    ],
)
def test_what_is_wrong_with_a_reply(reply: Reply, wrong: bool) -> None:
    assert wrong == bool(what_is_wrong(SENT, reply))


def test_a_late_answer_is_wrong_where_nobody_was_in_a_hurry() -> None:
    patient = Mutant("/decide", "none", b"", frozenset(), damaged=False, head_only=False)
    assert what_is_wrong(patient, Reply(504, "application/json", b"{}", closes=False))


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"]
)
def test_a_connection_that_ends_before_the_answer_is_a_finding(said: bytes) -> None:
    with answering(said) as address:
        report = asyncio.run(run(address, seed=SEED, indices=iter(range(3)), connections=1))
    assert [0, 1, 2] == [index for index, _ in report.findings]


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("500 Oh", 1)])
def test_the_command_ends_with_one_where_anything_was_wrong(status: str, code: int) -> None:
    reply = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
    with answering(reply) as (host, port):
        result = CliRunner().invoke(main, ["--requests", "5", "--url", f"http://{host}:{port}"])
    assert code == result.exit_code
    assert ("WRONG --seed 1 --only 0" in result.output) == bool(code)
