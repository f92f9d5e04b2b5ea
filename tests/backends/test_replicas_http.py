"""Several engines over HTTP: decisions survive what one of them does, and are the same whichever answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from structured_server.admission import Admission, Weight
from structured_server.api.app import create_app
from structured_server.api.service import build
from structured_server.backends.vllm import VllmBackend
from structured_server.backends.vllm.replicas import Replicas
from structured_server.breaker import FAILURES
from structured_server.core.questions import Schema
from structured_server.driver import Driver, Outcome
from structured_server.errors import UpstreamError
from structured_server.metrics import Metrics
from structured_server.readiness import ReadinessMonitor
from structured_server.settings import Settings
from structured_server.tokenizer import load_tokenizer
from tests.backends.reads import until
from tests.engine.server import free_port
from tests.fake_engine import FakeEngine, Faults
from tests.shell.deciding import SCHEMA, query
from tests.tokenizer.folders import gemma_like
from tests.toy_engine import ToyEngineTokenizer

ENGINE = Weight(1024, 16)
ONE = Schema(SCHEMA.questions[:1])


class Site:
    """Engines, and a driver that knows them as replicas of one.

    A token is a character here, so that all prompts begin with the same ones: one engine is home to them all.
    """

    def __init__(self, engines: Sequence[FakeEngine]) -> None:
        self.engines = engines
        tokenizer = ToyEngineTokenizer()
        backends = [
            (each.url, VllmBackend(each.url, model="fake", tokenizer=tokenizer, canvas=16, read_timeout_s=5))
            for each in engines
        ]
        self.metrics = Metrics()
        self.admission = Admission(ENGINE, max_waiting=1000)
        self.replicas = Replicas(backends)
        self.replicas.on_ready = self.admission.resize
        self.driver = Driver(self.replicas, tokenizer, self.admission, self.metrics)
        self.readiness = ReadinessMonitor(self.replicas, self.metrics)

    async def decide(self, number: int = 0, **asked: Any) -> Outcome:
        """Decide about one of many states."""
        usual: dict[str, Any] = {"state": f"pump {number}", "schema": ONE}
        return await self.driver.decide(query(**usual | asked))

    async def home(self) -> tuple[FakeEngine, FakeEngine]:
        """Return the engine that reads go to, and the other one."""
        await self.decide(samples=1)
        mine, other = sorted(self.engines, key=lambda each: -len(each.reads))
        assert (1, 0) == (len(mine.reads), len(other.reads))
        return mine, other

    def counted(self, metric: str, **labels: str) -> float:
        """Return the value of a metric."""
        return self.metrics.registry.get_sample_value(f"structured_server_{metric}", labels) or 0.0

    def ready(self) -> int:
        """Return how many engines are ready."""
        return sum(each.ready for each in self.replicas.replicas)


@asynccontextmanager
async def _site(count: int) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(FakeEngine(canvas=16)) for _ in range(count)]
        found = Site(engines)
        following = asyncio.create_task(found.readiness.run())
        await until(lambda: found.ready() == count)
        for engine in engines:
            engine.reads.clear()
        yield found
        following.cancel()
        await asyncio.wait([following])
        await found.replicas.close()
        assert (Weight(0, 0), 0) == (found.admission.in_use, found.admission.waiting)
        assert [0] * count == [each.load for each in found.replicas.replicas]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Two engines that are ready."""
    async with _site(2) as site:
        yield site


async def test_all_reads_of_a_decision_go_to_one_engine_and_decisions_at_once_are_spread(site: Site) -> None:
    for number in range(12):
        for engine in site.engines:
            engine.reads.clear()
        await site.decide(number, schema=SCHEMA, samples=8, isolate="all")
        assert [0, 24] == sorted(len(engine.reads) for engine in site.engines)
    await asyncio.gather(*(site.decide(number, samples=1) for number in range(40)))
    assert min(len(engine.reads) for engine in site.engines) >= 5


async def test_what_begins_alike_is_read_by_the_same_engine(site: Site) -> None:
    home, _ = await site.home()
    for seed in range(1, 6):
        await site.decide(samples=1, seed=seed)
    assert 6 == len(home.reads)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(status=500),
        Faults(status=400),
        Faults(status=429),
        Faults(reset=True),
        Faults(body="truncated"),
        Faults(body="html"),
        Faults(body="fewer_rows"),
        Faults(body="missing_id"),
        Faults(body="wrong_ids"),
        Faults(body="nan"),
        Faults(body="positive"),
    ],
    ids=lambda faults: f"{faults.status or faults.body or 'reset'}",
)
async def test_a_read_that_one_engine_fails_on_is_read_by_the_other_and_the_answer_is_the_same(
    site: Site, faults: Faults
) -> None:
    home, other = await site.home()
    right = await site.decide(samples=1)
    home.faults = faults
    again = await site.decide(samples=1)
    assert right.decision.answers == again.decision.answers
    assert 1 == len(other.reads)
    assert home.reads[-1].body == other.reads[-1].body
    assert 1 == site.counted("retries_total")


async def test_an_engine_that_hangs_is_left_in_time_for_the_other(site: Site) -> None:
    home, other = await site.home()
    home.faults = Faults(hang=True)
    begun = time.monotonic()
    assert (await site.decide(samples=1, deadline_s=1)).decision.answers
    assert 0.3 <= time.monotonic() - begun < 1
    assert (1, 1) == (len(other.reads), site.counted("upstream_errors_total", kind="timeout"))
    await until(lambda: home.hung_up == 1)


async def test_where_both_fail_it_is_an_error_and_not_an_answer(site: Site) -> None:
    for engine in site.engines:
        engine.faults = Faults(body="nan")
    with pytest.raises(UpstreamError, match="is no read"):
        await site.decide(samples=1)
    assert [1, 2] == sorted(len(engine.reads) for engine in site.engines)


async def test_an_engine_that_fails_on_every_read_is_soon_asked_no_more(site: Site) -> None:
    """Its health is well: only its reads say otherwise."""
    bad, good = await site.home()
    bad.reads.clear()
    bad.faults = Faults(body="truncated")
    for number in range(40):
        assert (await site.decide(number, samples=1)).decision.answers
    assert FAILURES <= len(bad.reads) <= FAILURES + 2, "a slow machine may see it tried again"
    assert 40 == len(good.reads)
    bad.faults = Faults()
    tried = len(bad.reads)
    await asyncio.sleep(1.05)
    for number in range(40, 80):
        assert (await site.decide(number, samples=1)).decision.answers
    assert len(bad.reads) > tried + 5, "it is well again"


async def test_an_engine_that_dies_is_left_out_and_taken_back_when_it_returns(site: Site) -> None:
    dying, _ = await site.home()
    going, wrong, right = True, [], []

    async def ask_on(first: int) -> None:
        number = first
        while going:
            number += 2
            try:
                right.append((number, await site.decide(number, samples=1)))
            except UpstreamError as error:
                wrong.append(error)

    asking = [asyncio.create_task(ask_on(first)) for first in range(2)]
    await until(lambda: len(right) > 20)
    await dying.stop()
    await until(lambda: site.ready() == 1)
    assert ENGINE == site.admission.capacity, "half of the permits are gone"
    answered = len(right)
    await until(lambda: len(right) > answered + 20)
    dying.reads.clear()
    await dying.start()
    await until(lambda: site.ready() == 2, 10)
    assert ENGINE * 2 == site.admission.capacity
    await until(lambda: len(dying.reads) > 10, 10)
    going = False
    await asyncio.gather(*asking)
    assert [] == wrong
    for number, outcome in right[::10]:
        assert (await site.decide(number, samples=1)).decision.answers == outcome.decision.answers


async def test_when_all_engines_die_the_server_is_not_ready_and_is_again_when_one_returns(site: Site) -> None:
    for engine in site.engines:
        await engine.stop()
    await until(lambda: not site.readiness.now.ready, 5)
    for engine in site.engines:
        said = f"{engine.url}: nothing answers at {engine.url}"
        await until(lambda said=said: said in (site.readiness.now.problem or ""), 5)  # type: ignore[misc]
    with pytest.raises(UpstreamError):
        await site.decide()
    await site.engines[1].start()
    await until(lambda: site.readiness.now.ready, 5)
    assert (await site.decide(samples=1)).decision.answers


# The whole server


async def test_a_server_with_several_upstreams_follows_them_and_counts_their_permits(tmp_path: Path) -> None:
    folder = str(gemma_like(tmp_path))
    async with FakeEngine(load_tokenizer(folder)) as one:
        absent = f"http://127.0.0.1:{free_port()}"
        upstream = f"{one.url}/v1, {absent}"
        settings = Settings(upstream=upstream, model="fake", tokenizer=folder, log_level="error")
        app = create_app(build(settings))
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            async with asyncio.timeout(10):
                while (await client.get("/ready")).status_code != 200:
                    await asyncio.sleep(0.01)
            body = {"state": "a pump", "questions": {"urgent": {"type": "noul", "instructions": "Is it?"}}}
            assert 200 == (await client.post("/decide", json=body)).status_code
            metrics = (await client.get("/metrics")).text
        assert f'structured_server_upstream_ready{{upstream="{one.url}"}} 1.0' in metrics
        assert f'structured_server_upstream_ready{{upstream="{absent}"}} 0.0' in metrics
        assert 'structured_server_permits{unit="reads"} 16.0' in metrics, "those of the one that is ready"
