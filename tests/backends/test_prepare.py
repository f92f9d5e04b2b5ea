"""Getting ready: the steps in their order, and each wrong engine found and named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from structured_server.backends import NotReady, Step
from structured_server.backends.vllm import VllmBackend, probe
from structured_server.backends.vllm.client import Client
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Read, ReadRequest
from structured_server.errors import UpstreamFailed, UpstreamTimeout
from structured_server.settings import PromptTransport
from tests.backends.conftest import Connect
from tests.backends.reads import read_request, until, walk
from tests.fake_engine import FakeEngine, Faults
from tests.toy import LABELS
from tests.toy_engine import ToyEngineTokenizer

STEPS = ["engine", "model", "tokenizer", "contract", "warm_up", "images"]


def able(
    width: int, max_model_len: int | None, *, continues: bool = True, images: bool = False
) -> Capabilities:
    """Return what a backend over the fake engine can do."""
    return Capabilities(
        (width,),
        128,
        max_model_len,
        max_steps=8,
        constrained=True,
        generation=True,
        chat=True,
        continues=continues,
        images=images,
        separate=True,
    )


@pytest.mark.parametrize("transport", ["completions", "chat"])
async def test_a_right_engine_passes_every_step_and_its_widest_canvas_is_warm(
    engine: FakeEngine, connect: Connect, transport: PromptTransport
) -> None:
    backend = connect(transport=transport)
    assert STEPS == [step.name for step in await walk(backend)]
    assert able(64, 4096, continues=transport == "completions") == backend.capabilities
    assert [64] == [len(seen.canvas) for seen in engine.reads]


async def test_before_it_is_ready_a_backend_knows_only_what_it_was_told(connect: Connect) -> None:
    assert able(48, None) == connect(canvas=48).capabilities


async def test_each_step_says_what_it_waits_for_before_it_is_taken(
    engine: FakeEngine, connect: Connect
) -> None:
    steps = aiter(connect().prepare())
    assert f"the engine at {engine.url} to answer /health" == (await anext(steps)).waits_for
    assert "the engine's list of models to hold fake" == (await anext(steps)).waits_for
    assert "tokenise" in (await anext(steps)).waits_for
    assert "wrong length" in (await anext(steps)).waits_for
    assert [] == engine.reads
    assert "the first read of the widest canvas (64 tokens)" == (await anext(steps)).waits_for
    assert [] == engine.reads
    assert "images" in (await anext(steps)).waits_for
    assert 1 == len(engine.reads)


@pytest.mark.parametrize(
    ("faults", "step", "message"),
    [
        (Faults(dead=True), "engine", "says that it is dead (/health answered 503)"),
        (Faults(model="gemma"), "model", "the engine serves gemma, not fake: set --model"),
        (Faults(other_tokenizer=True), "tokenizer", "this server's tokenizer is not the engine's"),
        (Faults(vocabulary_size=9_000), "tokenizer", "the engine's model only 9000 entries"),
        (Faults(no_seeded_reads=True), "contract", "the engine ignores seeded canvases"),
        (Faults(canvas=32), "contract", "the engine's canvas is 32 tokens and this server was started with"),
        (Faults(status=500), "warm_up", "a read of 64 tokens failed: the engine failed on the read with 500"),
        (Faults(body="nan"), "warm_up", "a read of 64 tokens failed: the engine's reply is no read"),
        (Faults(body="missing_id"), "warm_up", "a read of 64 tokens failed: position 63 has no"),
        (Faults(reset=True), "warm_up", "a read of 64 tokens failed: the connection"),
    ],
)
async def test_a_wrong_engine_is_found_and_named(
    engine: FakeEngine, connect: Connect, faults: Faults, step: str, message: str
) -> None:
    engine.faults = faults
    walked: list[Step] = []
    with pytest.raises(NotReady) as caught:
        await walk(connect(), walked)
    assert STEPS[: STEPS.index(step) + 1] == [each.name for each in walked]
    assert message in str(caught.value)


async def test_a_canvas_that_differs_comes_with_both_ways_to_mend_it(
    engine: FakeEngine, connect: Connect
) -> None:
    engine.faults = Faults(canvas=32)
    with pytest.raises(NotReady) as caught:
        await walk(connect(canvas=64))
    assert "start this server with --canvas 32" in str(caught.value)
    assert """--diffusion-config '{"canvas_length": 64}'""" in str(caught.value)


async def test_an_engine_with_a_wider_canvas_will_do(engine: FakeEngine, connect: Connect) -> None:
    engine.faults = Faults(canvas=256)
    backend = connect(canvas=48)
    assert STEPS == [step.name for step in await walk(backend)]
    assert (48,) == backend.capabilities.widths


async def test_an_engine_with_the_same_words_in_another_order_has_another_tokenizer(
    engine: FakeEngine, connect: Connect
) -> None:
    engine.tokenizer = ToyEngineTokenizer(LABELS[::-1])
    with pytest.raises(NotReady) as caught:
        await walk(connect())
    assert "'Should we wake an on'..." in str(caught.value)
    assert "with other ids. Set --tokenizer" in str(caught.value)


async def test_an_engine_that_starts_late_is_waited_for(engine: FakeEngine, connect: Connect) -> None:
    await engine.stop()
    backend = connect()
    with pytest.raises(NotReady) as caught:
        await walk(backend)
    assert f"nothing answers at {engine.url}" in str(caught.value)
    await engine.start()
    assert STEPS == [step.name for step in await walk(backend)]


async def test_a_second_preparation_believes_nothing_of_the_first(
    engine: FakeEngine, connect: Connect
) -> None:
    backend = connect(canvas=32)
    await walk(backend)
    watching = asyncio.create_task(backend.watch())
    await until(lambda: backend.capabilities.widths == (16, 32))
    watching.cancel()
    engine.max_model_len = 512
    await walk(backend)
    assert able(32, 512) == backend.capabilities


async def test_an_engine_that_sees_images_is_found_out_and_one_that_does_no_longer_too(
    engine: FakeEngine, backend: VllmBackend
) -> None:
    for sees in (True, False):
        engine.images = sees
        await walk(backend)
        assert able(64, 4096, images=sees) == backend.capabilities
    assert {64} == {len(seen.canvas) for seen in engine.reads}, "finding out costs no read"


# Engines that answer otherwise than any vLLM


Stub = Callable[[str, int, bytes], Awaitable[Client]]


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """Serve one fixed answer at one path, 404 elsewhere, and connect to it."""
    runners: list[web.AppRunner] = []
    clients: list[Client] = []

    async def serve(path: str, status: int, body: bytes) -> Client:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, body=body)

        app = web.Application()
        app.router.add_route("*", path, answer)
        runners.append(web.AppRunner(app))
        await runners[-1].setup()
        site = web.TCPSite(runners[-1], "127.0.0.1", 0)
        await site.start()
        clients.append(Client(f"http://127.0.0.1:{runners[-1].addresses[0][1]}", timeout_s=2))
        return clients[-1]

    yield serve
    for client in clients:
        await client.close()
    for runner in runners:
        await runner.cleanup()


async def test_a_server_without_health_is_asked_whether_it_is_vllm(stub: Stub) -> None:
    with pytest.raises(NotReady, match=r"/health answered 404, not 200: is this a vLLM server\?"):
        await probe.check_health(await stub("/elsewhere", 200, b""))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"data": 7}'),
        (200, b'{"data": ["fake"]}'),
        (200, b'{"data": [{"name": "fake"}]}'),
        (200, b'{"data": [{"id": ["fake"]}]}'),
        (401, b'{"error": {"message": "no key"}}'),
    ],
)
async def test_a_list_of_models_that_is_none_is_named(stub: Stub, status: int, body: bytes) -> None:
    with pytest.raises(NotReady, match=f"/v1/models answered {status} with no list of models"):
        await probe.find_model(await stub("/v1/models", status, body), "fake")


@pytest.mark.parametrize(("length", "found"), [(512, 512), (None, None), ("512", None)])
async def test_a_context_is_known_only_where_the_engine_tells_it(
    stub: Stub, length: object, found: int | None
) -> None:
    body = orjson.dumps({"data": [{"id": "fake", "max_model_len": length}]})
    assert found == await probe.find_model(await stub("/v1/models", 200, body), "fake")


async def test_an_engine_without_models_serves_nothing(stub: Stub) -> None:
    with pytest.raises(NotReady, match="the engine serves nothing, not fake"):
        await probe.find_model(await stub("/v1/models", 200, b'{"data": []}'), "fake")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"{}", "/tokenize answered 200, not with token ids"),
        (200, b'{"tokens": null}', "/tokenize answered 200, not with token ids"),
        (200, b'{"tokens": 7}', "/tokenize answered 200, not with token ids"),
        (200, b'{"tokens": []}', "41 tokens here, 0 there"),
        (200, b'{"tokens": "ids"}', "is not the engine's"),
        (404, b'{"error": {"message": "gone"}}', r"/tokenize answered 404 \(gone\), not with token ids"),
    ],
)
async def test_an_engine_that_does_not_tokenise_is_named(
    stub: Stub, status: int, body: bytes, message: str
) -> None:
    with pytest.raises(NotReady, match=message):
        await probe.compare_tokenizers(
            await stub("/tokenize", status, body), "fake", ToyEngineTokenizer(["a"])
        )


@pytest.mark.parametrize(("status", "sees"), [(200, True), (400, False), (404, False), (500, False)])
async def test_only_an_engine_that_takes_an_image_sees_any(stub: Stub, status: int, sees: bool) -> None:
    assert sees == await probe.sees_images(await stub("/tokenize", status, b"{}"), "fake")


async def test_an_engine_that_is_gone_when_it_is_asked_for_images_is_not_taken_for_blind(
    engine: FakeEngine, client: Client
) -> None:
    await engine.stop()
    with pytest.raises(NotReady, match="nothing answers"):
        await probe.sees_images(client, "fake")


async def test_an_engine_that_names_no_vocabulary_size_is_compared_by_ids_alone(
    engine: FakeEngine, client: Client
) -> None:
    """A router may hide the message; the ids of the probe texts were compared all the same."""
    engine.faults = Faults(model="renamed")  # so the size's probe gets a 404
    await probe.compare_tokenizers(client, "fake", ToyEngineTokenizer())


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, b"", "answered 500 to a seed canvas of the wrong length, not its 400"),
        (400, b'{"error": {"message": "logprobs?"}}', r"answered 400 \(logprobs\?\) to a seed canvas"),
        (500, b'{"error": {"message": "diffusion_seed_canvas"}}', "answered 500 "),
    ],
)
async def test_an_engine_that_refuses_for_another_reason_is_named(
    stub: Stub, status: int, body: bytes, message: str
) -> None:
    with pytest.raises(NotReady, match=message):
        await probe.check_seeded_reads(await stub("/v1/completions", status, body), "fake", 64)


async def test_a_refusal_that_does_not_tell_the_canvas_is_left_to_the_warm_up(stub: Stub) -> None:
    body = b'{"error": {"message": "diffusion_seed_canvas is too short"}}'
    await probe.check_seeded_reads(await stub("/v1/completions", 400, body), "fake", 64)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UpstreamTimeout("late"), "a read of 32 tokens did not come back within 600 s."),
        (UpstreamFailed("it broke."), "a read of 32 tokens failed: it broke."),
    ],
)
async def test_a_first_read_that_fails_is_named(error: Exception, message: str) -> None:
    async def fail(_: ReadRequest) -> Read:
        raise error

    with pytest.raises(NotReady) as caught:
        await probe.warm(fail, ToyEngineTokenizer(), 32)
    assert message == str(caught.value)


async def test_a_first_read_has_the_shape_of_later_ones() -> None:
    """A whole prompt with its control tokens, and one slot where the canvas ends, so that all rows come."""
    sent: list[ReadRequest] = []

    async def keep(request: ReadRequest) -> Read:
        sent.append(request)
        raise UpstreamFailed("seen enough")

    tokenizer: Any = ToyEngineTokenizer()
    with pytest.raises(NotReady):
        await probe.warm(keep, tokenizer, 48)
    (request,) = sent
    assert (48, (47,), (16, 18)) == (request.width, request.positions, request.label_ids)
    assert tokenizer.encode_prompt(request.prompt.segments) == request.prompt.ids
    assert [i for i in read_request().prompt.ids if i < 7] == [i for i in request.prompt.ids if i < 7]
    assert request.canvas[47] in tokenizer.noise_ids
