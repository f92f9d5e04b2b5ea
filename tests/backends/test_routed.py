"""An engine behind a router that lets chat through and little else: found right, or wrong and named."""

from __future__ import annotations

from typing import Any

import pytest

from structured_server.backends import NotReady, Step
from structured_server.backends.vllm import VllmBackend, probe_routed
from structured_server.backends.vllm.client import Client
from structured_server.backends.vllm.messages import chat_headers
from structured_server.core.reads import Prompt
from structured_server.core.tokens import Kind, Segment
from tests.backends.conftest import Connect
from tests.backends.reads import read_request, walk
from tests.fake_engine import FakeEngine, Faults
from tests.toy import LABELS
from tests.toy_engine import ToyEngineTokenizer


@pytest.fixture
def routed(engine: FakeEngine, connect: Connect) -> VllmBackend:
    """A backend that reaches its engine through a router."""
    engine.faults = Faults(routed=True)
    return connect(transport="chat")


async def test_a_right_engine_is_ready_and_its_context_known(routed: VllmBackend) -> None:
    await walk(routed)
    assert ((64,), 4096, False) == (
        routed.capabilities.widths,
        routed.capabilities.max_model_len,
        routed.capabilities.images,
    )
    (read,) = await routed.read([read_request()])
    assert read.rows


async def test_with_prompts_as_ids_it_does_not_get_ready(engine: FakeEngine, connect: Connect) -> None:
    engine.faults = Faults(routed=True)
    with pytest.raises(NotReady, match=r"/tokenize answered 404 \(Invalid URL"):
        await walk(connect())


@pytest.mark.parametrize(
    ("faults", "step", "message"),
    [
        ({"other_tokenizer": True}, "tokenizer", "this server's tokenizer is not the engine's"),
        ({"vocabulary_size": 9_000}, "tokenizer", "the engine's model only 9000 entries"),
        ({"no_seeded_reads": True}, "contract", "the engine ignores seeded canvases"),
        ({"canvas": 32}, "contract", "start this server with --canvas 32"),
    ],
)
async def test_a_wrong_engine_is_found_and_named(
    engine: FakeEngine, routed: VllmBackend, faults: dict[str, Any], step: str, message: str
) -> None:
    engine.faults = Faults(routed=True, **faults)
    walked: list[Step] = []
    with pytest.raises(NotReady, match=message):
        await walk(routed, walked)
    assert step == walked[-1].name


async def test_the_same_words_in_another_order_are_another_tokenizer(
    engine: FakeEngine, routed: VllmBackend
) -> None:
    engine.tokenizer = ToyEngineTokenizer(LABELS[::-1])
    with pytest.raises(NotReady, match="with other ids"):
        await walk(routed)


async def test_another_chat_format_is_another_tokenizer(engine: FakeEngine, routed: VllmBackend) -> None:
    engine.tokenizer = ToyEngineTokenizer(scaffold_in_prompt=True)
    with pytest.raises(NotReady, match="is not the engine's"):
        await walk(routed)


async def test_an_engine_that_does_not_tell_its_ids_is_named(engine: FakeEngine, client: Client) -> None:
    engine.faults = Faults(routed=True, status=500)
    with pytest.raises(NotReady, match=r"has no /tokenize, and answered 500 \(the fault.*return_token_ids"):
        await probe_routed.compare_tokenizers_by_chat(client, engine.model, engine.tokenizer)


async def test_a_context_that_no_refusal_names_is_unknown(engine: FakeEngine, client: Client) -> None:
    assert 4096 == await probe_routed.find_length(client, engine.model)
    assert None is await probe_routed.find_length(client, "another model")


async def test_health_is_asked_where_it_was_told(connect: Connect) -> None:
    backend = connect(health_path="/readiness")
    assert "/readiness" in (await anext(aiter(backend.prepare()))).waits_for
    with pytest.raises(NotReady, match="/readiness answered 404, not 200"):
        await walk(backend)


# What keeps a decision's reads together


def _prompt(*texts: tuple[Kind, str]) -> Prompt:
    return Prompt((), tuple(Segment(kind, text) for kind, text in texts))


async def test_reads_about_one_state_have_one_key_whatever_is_asked_and_in_whichever_order() -> None:
    asked = [(Kind.TEXT, "Is it?"), (Kind.TEXT, "Was it?")]
    state = (Kind.STATE, "a pump \ud800")
    keys = [chat_headers(_prompt(*texts)) for each in asked for texts in ((each, state), (state, each))]
    assert [keys[0]] * 4 == keys
    assert keys[0] != chat_headers(_prompt(asked[0], (Kind.STATE, "another pump")))


async def test_the_key_travels_with_the_read_and_does_not_hold_the_state(
    engine: FakeEngine, routed: VllmBackend
) -> None:
    await walk(routed)
    request = read_request(state="quagga")
    await routed.read([request])
    (name, key), *others = chat_headers(request.prompt).items()
    assert [] == others
    assert key == engine.headers[-1][name]
    assert "quagga" not in str(engine.headers[-1])
