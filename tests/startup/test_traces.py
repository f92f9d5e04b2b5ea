"""A trace reaches a collector, with the caller as its parent and the engine below it, and tells no text."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from structured_server.tokenizer import load_tokenizer
from tests.engine.server import free_port
from tests.fake_engine import FakeEngine
from tests.proxy import Proxy, launch_proxy

TRIAGE = Path(__file__).parents[2] / "structured_server" / "data" / "triage"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MARKER = "zebrafish"
ASKED = {
    "state": f"The {MARKER} is slow.",
    "questions": {"urgent": {"type": "noul", "instructions": f"Is the {MARKER} urgent?"}},
    "read": {"samples": 2},
}


class Collector:
    """An OTLP/HTTP collector that keeps what comes."""

    def __init__(self) -> None:
        self.port = free_port()
        self.raw: list[bytes] = []
        self.spans: list[Span] = []

    async def take(self, request: web.Request) -> web.Response:
        """Take spans."""
        body = await request.read()
        self.raw.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response()

    @property
    def environ(self) -> dict[str, str]:
        """What makes a server send its spans here."""
        url = f"http://127.0.0.1:{self.port}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}

    def named(self, name: str) -> list[Span]:
        """Return the spans of this name in the test's trace."""
        return [each for each in self.spans if each.name == name and TRACE == each.trace_id.hex()]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """Collect."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", collector.port).start()
    yield collector
    await runner.cleanup()


async def started(engine: FakeEngine, log: Path, environ: dict[str, str]) -> Proxy:
    """Start a server before the engine and wait until it decides."""
    arguments = ("--upstream", engine.url, "--model", engine.model, "--tokenizer", str(TRIAGE))
    proxy = await asyncio.to_thread(launch_proxy, log, arguments, environ)
    await asyncio.to_thread(proxy.wait_until_ready)  # its narrower widths too: those reads are nobody's
    engine.headers.clear()
    return proxy


async def asked(proxy: Proxy, **headers: str) -> httpx.Response:
    """Ask under the test's trace."""
    place = {"traceparent": f"00-{TRACE}-{CALLER}-01"} | headers
    return await asyncio.to_thread(lambda: proxy.decide(ASKED, headers=place))


async def stopped(proxy: Proxy) -> int:
    """End it, and wait until its last spans are out."""
    proxy.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(proxy.process.wait, 20)


async def test_a_trace_reaches_a_collector_with_its_parent_kept(collector: Collector, tmp_path: Path) -> None:
    async with FakeEngine(load_tokenizer(str(TRIAGE))) as engine:
        proxy = await started(engine, tmp_path / "log", collector.environ)
        reply = await asked(proxy)
        seen = [headers["traceparent"] for headers in engine.headers]
        assert 0 == await stopped(proxy)
    assert 200 == reply.status_code
    (server,) = collector.named("POST /decide")
    assert (CALLER, Span.SPAN_KIND_SERVER) == (server.parent_span_id.hex(), server.kind)
    told = {each.key: each.value for each in server.attributes}
    assert (200, "/decide") == (
        told["http.response.status_code"].int_value,
        told["http.route"].string_value,
    )
    reads = collector.named("read")
    assert 2 == len(reads)
    assert sorted(f"00-{TRACE}-{read.span_id.hex()}-01" for read in reads) == sorted(seen)
    (together,) = collector.named("reads")
    assert {together.span_id} == {read.parent_span_id for read in reads}
    for name in ("queue", "tokenise", "reads", "fold"):
        assert collector.named(name), name
        assert {server.span_id} == {each.parent_span_id for each in collector.named(name)}
    assert all(MARKER.encode() not in body for body in collector.raw)


async def test_a_caller_that_does_not_sample_is_heeded(collector: Collector, tmp_path: Path) -> None:
    async with FakeEngine(load_tokenizer(str(TRIAGE))) as engine:
        proxy = await started(engine, tmp_path / "log", collector.environ)
        assert 200 == (await asked(proxy, traceparent=f"00-{TRACE}-{CALLER}-00")).status_code
        assert all(headers["traceparent"].endswith("-00") for headers in engine.headers)
        assert 0 == await stopped(proxy)
    assert [] == [each for each in collector.spans if TRACE == each.trace_id.hex()]


async def test_a_collector_that_is_away_costs_no_decision_and_no_clean_end(tmp_path: Path) -> None:
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    async with FakeEngine(load_tokenizer(str(TRIAGE))) as engine:
        proxy = await started(engine, tmp_path / "log", away)
        assert 200 == (await asked(proxy)).status_code
        assert 0 == await stopped(proxy)


async def test_without_a_collector_the_callers_place_goes_to_the_engine_as_it_is(tmp_path: Path) -> None:
    async with FakeEngine(load_tokenizer(str(TRIAGE))) as engine:
        proxy = await started(engine, tmp_path / "log", {})
        assert 200 == (await asked(proxy)).status_code
        assert {f"00-{TRACE}-{CALLER}-01"} == {headers["traceparent"] for headers in engine.headers}
        lines = (tmp_path / "log").read_text()
        await stopped(proxy)
    (line,) = [line for line in lines.splitlines() if '"route":"/decide"' in line]
    assert f'"logging.googleapis.com/trace":"{TRACE}"' in line
    assert f'"logging.googleapis.com/spanId":"{CALLER}"' in line
