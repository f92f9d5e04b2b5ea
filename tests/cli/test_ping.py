"""`structured-server ping`: what stands in the way, told apart, each with what to do next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from tests.engine.server import free_port
from tests.serving import serving_http


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["ping", *arguments])


@contextmanager
def fronted(status: int, body: str, kind: str = "text/html") -> Iterator[str]:
    """Serve one reply to everything, as a platform does in place of the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_ready_server_says_its_models() -> None:
    with serving_http() as url:
        for address in (url, f"{url}/v1"):
            result = run("-u", address)
            assert 0 == result.exit_code, result.output
            assert result.output.rstrip().endswith("ready")
            assert "models: dgemma" in result.output


@pytest.mark.parametrize(
    ("status", "code", "next_command"),
    [
        (401, 6, "for another audience"),
        (403, 6, "roles/run.invoker"),
        (404, 5, "gcloud run services describe"),
    ],
)
def test_what_a_platform_refuses_is_told_with_the_next_command(
    status: int, code: int, next_command: str
) -> None:
    with fronted(status, "<html><body>Error</body></html>") as url:
        result = run("-u", url, "--token", "some")
        without = run("-u", url)
    assert code == result.exit_code
    assert next_command in result.output
    assert ("wants a token. On Cloud Run: --gcp-auth" in without.output) == (status != 404)


def test_the_servers_own_key_is_told_from_the_platforms() -> None:
    with serving_http(api_key=("right",)) as url:
        missing, wrong = run("-u", url), run("-u", url, "--token", "no")
        right = run("-u", url, "--token", "right")
    assert (6, True) == (missing.exit_code, "wants an API key" in missing.output)
    assert (6, True) == (wrong.exit_code, "does not know this API key" in wrong.output)
    assert 0 == right.exit_code
    assert "gcloud" not in missing.output + wrong.output


def test_a_server_that_loads_says_its_step_and_may_be_waited_for() -> None:
    loading = '{"ready": false, "step": "engine", "waits_for": "the engine to answer", "problem": null}'
    with fronted(503, loading, "application/json") as url:
        result = run("-u", url)
        waited = run("-u", url, "--wait", "1.2s")
    assert 5 == result.exit_code
    assert "engine: engine, waits for the engine to answer" in result.output
    assert "--wait" in result.output
    assert 5 == waited.exit_code


def test_nobody_there_and_no_address_are_told_apart() -> None:
    assert 5 == run("-u", f"http://127.0.0.1:{free_port()}").exit_code
    assert 4 == run("-u", "somewhere").exit_code
