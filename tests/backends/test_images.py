"""Images through the vLLM backend: on the chat route, unchanged, and with the caller told what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from structured_server.backends.vllm import VllmBackend
from structured_server.backends.vllm.messages import chat_body
from structured_server.core.reads import Image, ReadRequest
from structured_server.errors import InvalidRequest, StateTooLong, UpstreamFailed, UpstreamRejected
from tests.backends.reads import read_request, walk, wanted_rows
from tests.fake_engine import IMAGE_TOKENS, FakeEngine, Faults
from tests.fake_replies import expected_logprob
from tests.toy_engine import ToyEngineTokenizer

PICTURES = (Image("image/png", b"\x89PNG\r\n\x1a\n first"), Image("image/gif", b"GIF89a second"))


@pytest.fixture
def seeing(engine: FakeEngine) -> FakeEngine:
    """Let the engine see images."""
    engine.images = True
    return engine


async def test_a_read_with_images_goes_to_the_chat_route_whatever_the_transport(
    seeing: FakeEngine, backend: VllmBackend
) -> None:
    """Reads without any stay where they were."""
    request = read_request(images=PICTURES)
    await walk(backend)
    seeing.reads.clear()
    read, plain = await backend.read([request, read_request()])
    assert plain.prompt_tokens + IMAGE_TOKENS * len(PICTURES) == read.prompt_tokens
    bodies = {"messages" in seen.body: (seen.prompt, seen.body) for seen in seeing.reads}
    expected = orjson.loads(chat_body("fake", request, ToyEngineTokenizer().neutralise))
    assert expected == bodies[True][1]
    assert "prompt" in bodies[False][1]
    assert wanted_rows(request, read) == _said_by_the_engine(request, bodies[True][0])


def _said_by_the_engine(request: ReadRequest, prompt: Sequence[int]) -> list[dict[int, float]]:
    return [
        {i: expected_logprob(prompt, request.canvas, i, position) for i in request.label_ids}
        for position in request.positions
    ]


async def test_images_that_the_engine_refuses_are_the_callers_to_mend(backend: VllmBackend) -> None:
    """As a text-only engine refuses all of them."""
    await walk(backend)
    with pytest.raises(InvalidRequest) as caught:
        await backend.read([read_request(images=PICTURES)])
    assert ("images",) == caught.value.path


async def test_a_refused_read_without_images_is_no_callers_mistake(
    seeing: FakeEngine, backend: VllmBackend
) -> None:
    await walk(backend)
    seeing.faults = Faults(status=400)
    with pytest.raises(UpstreamRejected):
        await backend.read([read_request()])


async def test_an_engine_that_fails_on_images_has_failed(seeing: FakeEngine, backend: VllmBackend) -> None:
    await walk(backend)
    seeing.faults = Faults(status=500)
    with pytest.raises(UpstreamFailed):
        await backend.read([read_request(images=PICTURES)])


async def test_images_that_the_engine_cannot_even_tokenise_are_the_callers_to_mend(
    seeing: FakeEngine, backend: VllmBackend
) -> None:
    """As with an image that claims more pixels than the engine unpacks: vLLM answers 500, not 400."""
    await walk(backend)
    seeing.faults = Faults(images_fail=True)
    with pytest.raises(InvalidRequest) as caught:
        await backend.read([read_request(images=PICTURES)])
    assert ("images",) == caught.value.path


@pytest.mark.parametrize("spare", [-16, -1, 0])
async def test_images_that_leave_no_room_for_the_canvas_are_refused_with_the_numbers(
    seeing: FakeEngine, backend: VllmBackend, spare: int
) -> None:
    """Only the engine can count their tokens, and it cuts the canvas short without a word."""
    request = read_request(images=PICTURES)
    tokens = len(request.prompt.ids) + IMAGE_TOKENS * len(PICTURES)
    seeing.max_model_len = tokens + request.width + spare
    await walk(backend)
    if spare >= 0:
        assert [tokens] == [read.prompt_tokens for read in await backend.read([request])]
        return
    with pytest.raises(StateTooLong) as caught:
        await backend.read([request])
    assert f"state and images have {tokens} tokens with the questions; {tokens + spare} fit." == (
        caught.value.message
    )
    assert ("state",) == caught.value.path
