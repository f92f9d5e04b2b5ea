"""`structured-server proxy`: all goes through as it is, with a token, and not for web pages."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from aiohttp import web
from click.testing import CliRunner

from structured_server.cli.main import cli
from structured_server.cli.proxy import application as proxy_application
from structured_server.client.asking import Server
from structured_server.google_auth import IdentityAuth
from tests.clients.relay import application, running
from tests.engine.server import free_port
from tests.fake_server import answer, serving
from tests.google_auth.issuer import Elsewhere, fronting, issuing
from tests.google_auth.test_identity import URL, gcloud, no_credentials, on_this_machine

__all__ = ["no_credentials"]  # the fixture holds here too


@contextmanager
def proxying(url: str, auth: httpx.Auth | None = None, transport: Any = None) -> Iterator[str]:
    """Run the proxy in a thread."""
    app = proxy_application(Server.at(url), auth, 10.0, transport)
    server = uvicorn.Server(uvicorn.Config(app, port=free_port(), log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.config.port}"
    finally:
        server.should_exit = True
        thread.join()


def test_requests_go_through_a_front_that_wants_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _, body: answer(body)) as server, issuing() as issuer:
        on_this_machine(monkeypatch, issuer)
        with (
            fronting(issuer, server.url, URL) as front,
            proxying(f"{URL}/v1", IdentityAuth(URL), Elsewhere(triage_example=front.url)) as local,
        ):
            body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "So?"}}}
            reply = httpx.post(f"{local}/v1/decide?a=b", json=body, headers={"Authorization": "Bearer stale"})
    assert 200 == reply.status_code
    assert body == server.asked[0]
    assert all("stale" not in str(shown) for shown in front.shown)


def test_a_reply_is_handed_on_as_it_comes_and_as_it_is() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=207, headers={"X-Own": "1", "Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in (b"one ", b"two"):
            await response.write(piece)
            await asyncio.sleep(0.5)
        return response

    with running(application(slow)) as url, proxying(url) as local:
        begun = time.monotonic()
        with httpx.stream("POST", f"{local}/x", content=b"body") as reply:
            pieces = [(piece, time.monotonic() - begun) for piece in reply.iter_raw()]
        assert (207, "1") == (reply.status_code, reply.headers["x-own"])
    assert b"one two" == b"".join(piece for piece, _ in pieces)
    assert pieces[0][1] < 0.45


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_web_pages_are_refused(headers: dict[str, str]) -> None:
    with serving(lambda _, body: answer(body)) as server, proxying(server.url) as local:
        reply = httpx.post(f"{local}/decide", json={}, headers=headers)
    assert (403, "not_for_pages") == (reply.status_code, reply.json()["error"]["code"])
    assert [] == server.asked


def test_a_page_of_the_server_itself_may_ask_and_paths_stay_as_they_are_written() -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.raw_path, {name.lower(): value for name, value in request.headers.items()}))
        return web.Response()

    with running(application(handle)) as url, proxying(f"{url}/v1") as local:
        own = {"Origin": local, "Sec-Fetch-Site": "same-origin", "X-Serverless-Authorization": "Bearer stale"}
        asked = httpx.get(f"{local}/a%2Fb?c=%20d", headers={**own, "Connection": "x-hop", "X-Hop": "1"})
    assert 200 == asked.status_code
    path, headers = seen[0]
    assert "/a%2Fb?c=%20d" == path
    assert not {"x-serverless-authorization", "x-hop"} & set(headers)


def test_no_server_and_no_token_are_told_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with proxying(f"http://127.0.0.1:{free_port()}") as local:
        gone = httpx.get(f"{local}/ready")
    assert (502, "unreachable") == (gone.status_code, gone.json()["error"]["code"])
    gcloud(tmp_path / "bin", monkeypatch, "exit 1")
    with proxying(URL, IdentityAuth(URL)) as local:
        reply = httpx.get(f"{local}/ready", timeout=30)
    assert (502, "no_token") == (reply.status_code, reply.json()["error"]["code"])
    assert "gcloud auth login" in reply.json()["error"]["message"]


def test_the_command_serves_until_it_is_interrupted() -> None:
    port = free_port()
    with serving(lambda _, body: answer(body)) as server:
        command = [
            sys.executable,
            "-m",
            "structured_server",
            "proxy",
            "--to",
            server.url,
            "--port",
            str(port),
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
        assert process.stderr is not None
        assert f"http://127.0.0.1:{port} is {server.url}" in process.stderr.readline()
        body = {"state": "x", "questions": {"q": {"type": "noul"}}}
        for _ in range(100):
            try:
                reply = httpx.post(f"http://127.0.0.1:{port}/decide", json=body)
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        assert 200 == reply.status_code
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(10)
        process.stderr.close()


def test_commands_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    gcloud(tmp_path / "bin", monkeypatch, "exit 1")
    questions = tmp_path / "q.yaml"
    questions.write_text("q: {type: noul, instructions: So}")
    rows = tmp_path / "in.csv"
    rows.write_text("text\nx\n")
    shared = ("-u", "https://triage.example", "--gcp-auth")
    for command in (
        ("decide", *shared, "-q", str(questions), "x"),
        ("ask", *shared, "x"),
        ("models", *shared),
        ("ping", *shared),
        ("batch", *shared, str(rows), "-q", str(questions), "-o", str(tmp_path / "out.csv")),
    ):
        result = CliRunner().invoke(cli, [*command])
        assert (6, True) == (result.exit_code, "gcloud auth login" in result.output), (command, result.output)
    alone = CliRunner().invoke(cli, ["models", "--audience", "x"])
    assert (4, True) == (alone.exit_code, "are for --gcp-auth" in alone.output)
    clear = CliRunner().invoke(cli, ["models", "-u", "http://triage.example", "--gcp-auth"])
    assert (6, True) == (clear.exit_code, "https://" in clear.output)
