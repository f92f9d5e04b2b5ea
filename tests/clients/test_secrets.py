"""What callers send as `Authorization` is ignored where there are no keys, and is never in a log line."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.clients.conftest import KEY, Serve
from tests.clients.ticket import QUESTIONS, STATE

SECRET = "marker-5f1d0c7a"  # noqa: S105 - what must not be found
HEADERS = [
    {"Authorization": f"Bearer {SECRET}"},
    {"Authorization": f"Basic {SECRET}"},
    {"Authorization": SECRET},
    {"Authorization": f"Bearer {SECRET} {SECRET}", "X-Serverless-Authorization": f"Bearer {SECRET}"},
]
GOOD = {"model": "jev-latest", "state": STATE, "questions": QUESTIONS}
CALLS: list[tuple[str, str, bytes]] = [
    ("POST", "/v1/systemone", json.dumps(GOOD).encode()),
    ("POST", "/decide", json.dumps({"state": STATE, "questions": QUESTIONS}).encode()),
    ("GET", "/v1/models", b""),
    ("POST", "/v1/systemone", b"{"),
    ("POST", "/v1/decisions", b"{}"),
    ("POST", "/v1/chat/completions", b"{}"),
    ("PUT", "/decide", b""),
    ("GET", "/no/such/path", b""),
    ("GET", "/live", b""),
]


@pytest.mark.parametrize(
    ("flags", "opened"), [((), [200, 200, 200]), (("--api-key", KEY), None)], ids=["without keys", "with one"]
)
def test_a_bearer_token_is_in_no_log_line(
    flags: tuple[str, ...], opened: list[int] | None, serve: Serve
) -> None:
    with serve("--log-level", "debug", *flags) as proxy:
        for headers in HEADERS:
            statuses = [
                httpx2.request(method, proxy.url + path, content=body, headers=headers).status_code
                for method, path, body in CALLS
            ]
            if opened is not None:
                assert opened == statuses[: len(opened)]
            else:
                assert {401, 403} >= set(statuses[:-1])
    lines = [json.loads(line) for line in proxy.log.read_text("utf-8").splitlines()]
    requests = [line for line in lines if line["message"] == "request" and line["route"] != "/ready"]
    assert len(HEADERS) * len(CALLS) == len(requests)
    log = proxy.log.read_text("utf-8")
    assert SECRET not in log
    assert KEY not in log
    assert STATE not in log
