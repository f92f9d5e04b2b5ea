"""Images through the driver: they go where the engine can see them, and take nothing else along."""

from __future__ import annotations

from typing import Any

import pytest

from structured_server.core.conditions import Conditions
from structured_server.core.questions import Noul, Schema
from structured_server.core.reads import Image
from structured_server.core.tokens import Kind
from structured_server.errors import InvalidRequest
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, query, sure, unsure
from tests.shell.simulated_time import simulated
from tests.toy import ToyTokenizer

PICTURES = (Image("image/png", b"one"), Image("image/jpeg", b"two"))
CHAIN = Schema((("a", Noul("So?")), ("b", Noul("And then?", conditions=Conditions(("a",))))))


def seeing(**settings: Any) -> Deciding:
    """Return a driver over a backend that sees images."""
    tokenizer = ToyTokenizer(scaffold=True, scaffold_in_prompt=settings.pop("scaffold_in_prompt", False))
    abilities: dict[str, Any] = {"images": True, "logprob": sure, **settings}
    return Deciding(FakeBackend(**abilities), tokenizer=tokenizer)


@simulated
async def test_images_reach_every_read_unchanged_and_in_order() -> None:
    deciding = seeing(logprob=unsure)
    await deciding.driver.decide(query(images=PICTURES, isolate="all"))
    requests = [request for batch in deciding.backend.batches for request in batch]
    assert 12 == len(requests)
    assert {PICTURES} == {request.prompt.images for request in requests}


@simulated
async def test_without_images_no_read_has_any() -> None:
    deciding = seeing()
    await deciding.driver.decide(query())
    assert () == deciding.backend.batches[0][0].prompt.images


@simulated
async def test_an_engine_that_reads_text_only_is_told_of_before_anything_is_read() -> None:
    deciding = Deciding()
    with pytest.raises(InvalidRequest) as caught:
        await deciding.driver.decide(query(images=PICTURES))
    assert "images cannot be seen: this engine reads text only." == caught.value.message
    assert ("images",) == caught.value.path
    assert [] == deciding.backend.batches


@pytest.mark.parametrize("in_prompt", [False, True])
@pytest.mark.parametrize("scaffold", ["prompt", "canvas"])
@simulated
async def test_with_images_the_empty_thought_block_stands_where_the_chat_template_leaves_it(
    in_prompt: bool, scaffold: str
) -> None:
    """The engine makes the prompt itself: nothing of ours can stand at its end, and nothing be taken away."""
    deciding = seeing(scaffold_in_prompt=in_prompt)
    await deciding.driver.decide(query(images=PICTURES, scaffold=scaffold))
    ((request,),) = deciding.backend.batches
    block = deciding.tokenizer.scaffold
    assert in_prompt is (block == request.prompt.ids[-len(block) :])
    assert in_prompt is not (block == request.canvas[: len(block)])


@pytest.mark.parametrize("images", [PICTURES, ()], ids=["images", "chat messages only"])
@simulated
async def test_where_prompts_are_messages_later_stages_are_told_the_earlier_answers(
    images: tuple[Image, ...],
) -> None:
    deciding = seeing(continues=bool(images))
    await deciding.driver.decide(query(schema=CHAIN, images=images))
    (first,), (second,) = deciding.backend.batches
    tokenizer = deciding.tokenizer
    for request in (first, second):
        assert tokenizer.encode_prompt(request.prompt.segments) == request.prompt.ids
        assert tokenizer.scaffold == request.canvas[: len(tokenizer.scaffold)]
    texts = [
        "".join(segment.text for segment in request.prompt.segments if segment.kind is Kind.TEXT)
        for request in (first, second)
    ]
    assert "Answered already" not in texts[0]
    assert texts[1].endswith("Answered already:\na: yes")


@simulated
async def test_other_images_draw_other_noise_and_the_same_the_same() -> None:
    deciding = seeing()
    for images in (PICTURES, PICTURES, PICTURES[::-1], PICTURES[:1], ()):
        await deciding.driver.decide(query(images=images, scaffold="canvas"))
    canvases = [batch[0].canvas for batch in deciding.backend.batches]
    assert canvases[0] == canvases[1]
    assert 4 == len(set(canvases))


@simulated
async def test_a_decision_with_images_and_one_without_have_different_plans_but_may_follow_each_other() -> (
    None
):
    deciding = seeing()
    prints = [
        (await deciding.driver.decide(query(images=images))).fingerprint for images in ((), PICTURES, ())
    ]
    assert prints[0] == prints[2] != prints[1]
