"""The embedded backend: equal reads are equal, draws share a prompt, and what cannot be read is refused."""

from __future__ import annotations

import asyncio
import math
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from structured_server.backends import NotReady
from structured_server.backends.embedded import DemoModel, EmbeddedBackend
from structured_server.backends.embedded.backend import MAX_MODEL_LEN
from structured_server.backends.embedded.graph import CHUNK, KEPT_TOKENS
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest, checked
from structured_server.errors import UpstreamFailed, UpstreamRejected, UpstreamUnreachable
from structured_server.tokenizer import LoadedTokenizer
from tests.embedded.conftest import Requests
from tests.toy import ToyTokenizer


def largest_difference(reads: Sequence[Read], others: Sequence[Read]) -> float:
    """Return how far apart two reads' log-probabilities are at most."""
    return max(
        abs(value - other.rows[row].logprobs[token])
        for read, other in zip(reads, others, strict=True)
        for row in range(len(read.rows))
        for token, value in read.rows[row].logprobs.items()
    )


async def steps(backend: EmbeddedBackend) -> list[str]:
    """Prepare a backend and return the names of its steps."""
    return [step.name async for step in backend.prepare()]


# Reads


async def test_a_read_holds_a_row_a_position_and_a_number_a_label(
    backend: EmbeddedBackend, requests: Requests
) -> None:
    (request,) = requests.draws(requests.ids(40))
    (read,) = await backend.read([request])
    assert read == checked(request, read)
    assert 40 == read.prompt_tokens
    assert all(request.label_ids == tuple(row.logprobs) for row in read.rows)


async def test_probabilities_over_the_whole_vocabulary_sum_to_1_and_the_largest_is_the_top(
    backend: EmbeddedBackend, own_tokenizer: LoadedTokenizer, requests: Requests
) -> None:
    everything = tuple(range(own_tokenizer.vocabulary_size))
    (read,) = await backend.read(
        [ReadRequest(Prompt(requests.ids(20)), requests.ids(16), (2, 7), everything)]
    )
    for row in read.rows:
        assert 1 == pytest.approx(sum(map(math.exp, row.logprobs.values())), abs=1e-4)
        assert row.top == max(row.logprobs, key=row.logprobs.__getitem__)


async def test_the_same_read_gives_the_same_numbers(
    backend: EmbeddedBackend, demo_model: DemoModel, own_tokenizer: LoadedTokenizer, requests: Requests
) -> None:
    """Again in the same backend, which takes the prompt from its memory, and in another one."""
    asked = requests.draws(requests.ids(200))
    first = await backend.read(asked)
    again = await backend.read(asked)
    other = EmbeddedBackend(demo_model.weights, tokenizer=own_tokenizer)
    await steps(other)
    assert 1e-6 > largest_difference(first, again)
    assert 1e-6 > largest_difference(first, await other.read(asked))
    await other.close()


@pytest.mark.parametrize("width", [16, 32, 48, 64])
async def test_draws_read_together_are_as_if_read_alone(
    backend: EmbeddedBackend, requests: Requests, width: int
) -> None:
    asked = requests.draws(requests.ids(60), width=width, count=4)
    together = await backend.read(asked)
    alone = [read for each in asked for read in await backend.read([each])]
    assert 1e-5 > largest_difference(together, alone)
    assert 0 < largest_difference(together[:1], together[1:2])


async def test_a_batch_of_different_prompts_comes_back_in_order(
    backend: EmbeddedBackend, requests: Requests
) -> None:
    asked = [
        *requests.draws(requests.ids(30), count=2),
        *requests.draws(requests.ids(50), width=32),
        *requests.draws(requests.ids(30)),
    ]
    together = await backend.read(asked)
    alone = [read for each in asked for read in await backend.read([each])]
    assert [30, 30, 50, 30] == [read.prompt_tokens for read in together]
    assert 1e-5 > largest_difference(together, alone)


async def test_the_event_loop_goes_on_while_a_read_runs(backend: EmbeddedBackend, requests: Requests) -> None:
    reading = asyncio.create_task(backend.read(requests.draws(requests.ids(2000), width=64)))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert 10 < turns


# Prompts that were read before


async def test_extra_draws_take_the_whole_prompt_from_memory(
    backend: EmbeddedBackend, requests: Requests
) -> None:
    first, *extra = requests.draws(requests.ids(120), count=4)
    assert [0] == [read.cached_tokens for read in await backend.read([first])]
    assert [120, 120, 120] == [read.cached_tokens for read in await backend.read(extra)]


async def test_draws_of_one_run_encode_their_prompt_once(
    backend: EmbeddedBackend, requests: Requests
) -> None:
    reads = await backend.read(requests.draws(requests.ids(70), count=3))
    assert [0, 70, 70] == [read.cached_tokens for read in reads]


@pytest.mark.parametrize("shared", [1, 100, 149])
async def test_a_prompt_that_starts_as_another_one_is_read_as_from_scratch(
    backend: EmbeddedBackend,
    demo_model: DemoModel,
    own_tokenizer: LoadedTokenizer,
    requests: Requests,
    shared: int,
) -> None:
    start = requests.ids(150)
    await backend.read(requests.draws(start))
    other_end = tuple(own_tokenizer.noise_ids[i] for i in range(150 - shared))
    assert start[shared] != other_end[0]
    asked = requests.draws(start[:shared] + other_end)
    (read,) = await backend.read(asked)
    assert shared == read.cached_tokens
    fresh = EmbeddedBackend(demo_model.weights, tokenizer=own_tokenizer)
    await steps(fresh)
    assert 1e-5 > largest_difference([read], await fresh.read(asked))
    await fresh.close()


async def test_a_prompt_that_is_the_start_of_another_one_is_not_encoded_again(
    backend: EmbeddedBackend, requests: Requests
) -> None:
    whole = requests.ids(90)
    await backend.read(requests.draws(whole))
    assert [40] == [read.cached_tokens for read in await backend.read(requests.draws(whole[:40]))]


async def test_prompts_are_forgotten_when_many_others_came(
    backend: EmbeddedBackend, requests: Requests
) -> None:
    first = requests.draws(requests.ids(600))
    await backend.read(first)
    for _ in range(KEPT_TOKENS // 2000):
        await backend.read(requests.draws(requests.ids(2000)))
    (read,) = await backend.read(first)
    assert read.cached_tokens is not None
    assert 5 > read.cached_tokens


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1])
async def test_long_prompts_are_encoded_in_pieces_with_the_same_outcome(
    backend: EmbeddedBackend, requests: Requests, length: int
) -> None:
    """The same prompt, its start read before, is cut elsewhere."""
    ids = requests.ids(length)
    asked = requests.draws(ids)
    in_one_go = await backend.read(asked)
    await backend.read(requests.draws(requests.ids(KEPT_TOKENS // 2 - 64)))
    await backend.read(requests.draws(requests.ids(KEPT_TOKENS // 2 - 64)))  # nothing else is kept now
    await backend.read(requests.draws(ids[: max(1, length // 3)]))
    (read,) = again = await backend.read(asked)
    assert read.cached_tokens == max(1, length // 3)
    assert 1e-5 > largest_difference(in_one_go, again)


# What cannot be read


@pytest.mark.parametrize(("length", "width"), [(0, 16), (MAX_MODEL_LEN - 15, 16), (MAX_MODEL_LEN - 63, 64)])
async def test_a_prompt_that_is_empty_or_too_long_is_refused(
    backend: EmbeddedBackend, requests: Requests, length: int, width: int
) -> None:
    with pytest.raises(UpstreamRejected, match=f"a prompt of {length} tokens and a canvas of {width}"):
        await backend.read(requests.draws(requests.ids(length), width=width))


async def test_a_prompt_that_just_fits_is_read(backend: EmbeddedBackend, requests: Requests) -> None:
    (read,) = await backend.read(requests.draws(requests.ids(MAX_MODEL_LEN - 64), width=64))
    assert MAX_MODEL_LEN - 64 == read.prompt_tokens


async def test_what_the_runtime_raises_becomes_an_upstream_error(
    backend: EmbeddedBackend, own_tokenizer: LoadedTokenizer, requests: Requests
) -> None:
    (request,) = requests.draws(requests.ids(10))
    beyond = ReadRequest(
        Prompt((own_tokenizer.vocabulary_size,)), request.canvas, request.positions, request.label_ids
    )
    with pytest.raises(UpstreamFailed, match="failed on the read"):
        await backend.read([beyond])
    assert [10] == [read.prompt_tokens for read in await backend.read([request])]


async def test_nothing_is_read_before_it_is_prepared_nor_after_it_is_closed(
    demo_model: DemoModel, own_tokenizer: LoadedTokenizer, requests: Requests
) -> None:
    backend = EmbeddedBackend(demo_model.weights, tokenizer=own_tokenizer)
    asked = requests.draws(requests.ids(10))
    with pytest.raises(UpstreamUnreachable, match="not loaded"):
        await backend.read(asked)
    await steps(backend)
    await backend.read(asked)
    await backend.close()
    with pytest.raises(UpstreamUnreachable, match="closed"):
        await backend.read(asked)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("embedded")]


async def test_it_does_not_write_and_says_so(backend: EmbeddedBackend, requests: Requests) -> None:
    capabilities = backend.capabilities
    assert (1, False, False, False) == (
        capabilities.max_steps,
        capabilities.constrained,
        capabilities.generation,
        capabilities.images,
    )
    with pytest.raises(UpstreamRejected, match="does not generate"):
        await backend.generate(Prompt(requests.ids(10)), 5, 1)


# Readiness


async def test_it_gets_ready_in_three_steps(demo_model: DemoModel, own_tokenizer: LoadedTokenizer) -> None:
    backend = EmbeddedBackend(demo_model.weights, tokenizer=own_tokenizer, canvas=48)
    assert ["weights", "tokenizer", "warm_up"] == await steps(backend)
    assert Capabilities((16, 32, 48), None, MAX_MODEL_LEN) == backend.capabilities
    await backend.close()


async def test_a_tokenizer_of_another_size_is_noticed(demo_model: DemoModel) -> None:
    tokenizer = ToyTokenizer()
    backend = EmbeddedBackend(demo_model.weights, tokenizer=tokenizer)
    with pytest.raises(NotReady, match=f"the tokenizer has {tokenizer.vocabulary_size} ids, the model "):
        await steps(backend)
    await backend.close()


@pytest.mark.parametrize("broken", ["missing", "cut short", "no graph"])
async def test_weights_that_cannot_be_loaded_are_named(
    demo_model: DemoModel, own_tokenizer: LoadedTokenizer, tmp_path: Path, broken: str
) -> None:
    file = tmp_path / "model.onnx"
    if broken == "cut short":
        file.write_bytes(demo_model.weights.read_bytes()[:100_000])
    elif broken == "no graph":
        file.write_text("weights")
    backend = EmbeddedBackend(file, tokenizer=own_tokenizer)
    with pytest.raises(NotReady, match=r"model\.onnx cannot be loaded"):
        await steps(backend)
    shutil.copyfile(demo_model.weights, file)
    assert ["weights", "tokenizer", "warm_up"] == await steps(backend)
    await backend.close()


async def test_it_is_never_lost(backend: EmbeddedBackend) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(backend.watch(), 0.01)
