"""A client that leaves takes its reads with it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence

import httpx
import orjson

from structured_server.core.reads import Read, ReadRequest
from tests.golden.record import Recorder
from tests.golden.requests import TRIAGE
from tests.serving import serving_http

BODY = orjson.dumps({"state": "502 spike", "questions": TRIAGE, "read": {"isolate": "all"}})


class Hanging(Recorder):
    """A backend whose reads never end, and that counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.cancelled = 0

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        self.begun += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return []


def _wait_for(count: int, backend: Hanging, attribute: str) -> None:
    end = time.monotonic() + 5
    while getattr(backend, attribute) != count and time.monotonic() < end:
        time.sleep(0.01)
    assert count == getattr(backend, attribute)


def test_a_client_that_leaves_cancels_its_reads_and_frees_its_permits() -> None:
    backend = Hanging()
    with serving_http(backend) as url:
        head = f"POST /decide HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as client:
            client.sendall(head + BODY)
            _wait_for(3, backend, "begun")
        _wait_for(3, backend, "cancelled")
        metrics = httpx.get(f"{url}/metrics").text
        assert 'structured_server_permits_in_use{unit="reads"} 0.0' in metrics
        assert 'structured_server_requests_total{route="/decide",status="499"} 1.0' in metrics


def test_a_client_that_leaves_before_its_body_is_whole_is_no_error() -> None:
    with serving_http() as url:
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as client:
            client.sendall(b"POST /decide HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        time.sleep(0.1)
        assert 'status="500"' not in httpx.get(f"{url}/metrics").text
