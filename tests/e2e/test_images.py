"""Decisions about images, on a real vLLM that sees them, held against transformers."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from structured_server.core.reads import Prompt
from structured_server.core.tokens import Kind, Segment
from structured_server.tokenizer import LoadedTokenizer
from structured_server.wire.decide_response import DecideResponse
from tests.e2e.expected import expected_probabilities
from tests.engine.server import (
    DEFAULT_ARGUMENTS,
    MAX_MODEL_LEN,
    SEEING,
    Engine,
    Oracle,
    checkpoint,
    require_engine,
    start_engine,
)
from tests.golden.requests import TEAM, TRIAGE, URGENT
from tests.proxy import Proxy

SOFT = 64
"""Tokens of a square image: 8 by 8, of the 70 that it may have."""

STATE = "The dashboard of the depot, a minute ago."
CHAIN: dict[str, Any] = {"urgent": URGENT, "team": {**TEAM, "depends_on": ["urgent"]}}


def png(width: int, height: int, seed: int) -> bytes:
    """Draw a pattern of three waves as a PNG."""
    lines = b"".join(
        b"\0" + bytes((x * (seed + c) + y * (3 * c + 1)) % 256 for x in range(width) for c in range(3))
        for y in range(height)
    )
    return _png(width, height, zlib.compress(lines))


def _png(width: int, height: int, pixels: bytes) -> bytes:
    header = width.to_bytes(4) + height.to_bytes(4) + bytes((8, 2, 0, 0, 0))
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4) for kind, data in chunks
    )


ONE, OTHER, WIDE = png(64, 64, 1), png(64, 64, 5), png(90, 40, 2)


@pytest.fixture(scope="module")
def model() -> Path:
    """A checkpoint with a processor."""
    require_engine()
    return checkpoint(*DEFAULT_ARGUMENTS, "--images")


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    """An engine that sees images."""
    engine = start_engine(model, extra=SEEING)
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def proxy(engine: Engine, model: Path, start_proxy: Callable[..., Proxy]) -> Proxy:
    """A ready server before it."""
    proxy = start_proxy(engine.url, ["--tokenizer", str(model)])
    proxy.wait_until_ready()
    return proxy


@pytest.fixture(scope="module")
def oracle(model: Path) -> Iterator[Oracle]:
    """Read with transformers in process, on the same checkpoint."""
    oracle = Oracle(model)
    yield oracle
    oracle.close()


def _asked(*images: bytes, questions: dict[str, Any] = TRIAGE, draws: int = 1) -> dict[str, Any]:
    urls = [f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in images]
    given = {"images": urls} if urls else {}
    return {"state": STATE, "questions": questions, "read": {"samples": draws}, **given}


def _decide(proxy: Proxy, *images: bytes, **settings: Any) -> dict[str, Any]:
    return _answer(proxy.decide(_asked(*images, **settings)))


def _answer(reply: httpx.Response) -> dict[str, Any]:
    assert 200 == reply.status_code, reply.text
    DecideResponse.model_validate_json(reply.content)
    answer: dict[str, Any] = reply.json()
    return answer


def _probabilities(answer: dict[str, Any]) -> dict[str, list[float]]:
    return {name: list(each["probabilities"].values()) for name, each in answer["answers"].items()}


def _assert_close(
    expected: dict[str, list[float]], found: dict[str, list[float]], within: float = 1e-4
) -> None:
    assert expected.keys() == found.keys()
    for name, probabilities in expected.items():
        assert pytest.approx(probabilities, abs=within) == found[name], name


def _distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = zip(_probabilities(one).values(), _probabilities(other).values(), strict=True)
    return max(abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True))


def _with_images(tokenizer: LoadedTokenizer, soft: Sequence[int]) -> Callable[[Prompt], list[int]]:
    """Put images of so many tokens where the chat template has them: before the user's text."""

    def control(text: str) -> list[int]:
        return list(tokenizer.encode_prompt([Segment(Kind.CONTROL, text)]))

    begin, image, end, turn = map(control, ("<|image>", "<|image|>", "<image|>", "<|turn>"))
    opening = control("<|turn>user\n")
    block = [i for count in soft for i in (*begin, *image * count, *end)]

    def ids_of(prompt: Prompt) -> list[int]:
        ids = list(prompt.ids)
        start = [place for place, i in enumerate(ids) if [i] == turn][1]
        assert opening == ids[start : start + len(opening)]
        start += len(opening)
        return [*ids[:start], *block, *ids[start:]]

    return ids_of


@pytest.mark.parametrize(
    ("images", "soft"), [([ONE], [SOFT]), ([WIDE, OTHER], [60, SOFT])], ids=["one", "two"]
)
@pytest.mark.parametrize("questions", [TRIAGE, CHAIN], ids=["one stage", "two stages"])
def test_a_decision_about_images_is_what_transformers_reads(
    proxy: Proxy,
    checkpoint_tokenizer: LoadedTokenizer,
    oracle: Oracle,
    images: list[bytes],
    soft: list[int],
    questions: dict[str, Any],
) -> None:
    request = _asked(*images, questions=questions, draws=2)
    answer = _answer(proxy.decide(request))
    ids_of = _with_images(checkpoint_tokenizer, soft)
    expected = expected_probabilities(request, 2, checkpoint_tokenizer, oracle, ids_of)
    _assert_close(expected, _probabilities(answer))
    stages = [["urgent"], ["team"]] if questions is CHAIN else [list(TRIAGE)]
    assert stages == answer["reading"].get("stages", [list(TRIAGE)])


def test_a_data_url_and_a_part_are_the_same_image(proxy: Proxy) -> None:
    expected = _decide(proxy, ONE, OTHER)
    for name in ("picture.png", None):
        parts: list[tuple[str, Any]] = [
            ("request", (None, json.dumps(_asked(ONE)))),
            ("picture", (name, OTHER, "image/png")),
        ]
        found = _answer(httpx.post(f"{proxy.url}/decide", files=parts, timeout=60))
        _assert_close(_probabilities(expected), _probabilities(found))
        assert expected["provenance"] == found["provenance"]


def test_another_image_or_order_or_none_gives_another_answer(proxy: Proxy) -> None:
    answers = [_decide(proxy, *images) for images in ((), (ONE,), (OTHER,), (ONE, OTHER), (OTHER, ONE))]
    for place, answer in enumerate(answers):
        assert all(_distance(answer, other) > 0.01 for other in answers[:place])


def test_the_tokens_of_images_are_counted(proxy: Proxy, checkpoint_tokenizer: LoadedTokenizer) -> None:
    """Without images the scaffold stands in the prompt; with them it stands in the canvas."""
    none, one, two = (
        _decide(proxy, *images)["usage"]["engine_input_tokens"] for images in ((), (ONE,), (ONE, ONE))
    )
    assert SOFT + 2 == two - one == one - none + len(checkpoint_tokenizer.scaffold)


def test_decisions_about_images_at_once_are_those_made_alone(proxy: Proxy) -> None:
    several = [(ONE,), (OTHER, WIDE), (), (WIDE,), (ONE, OTHER)]
    alone = [_decide(proxy, *images) for images in several]
    with ThreadPoolExecutor(len(several)) as pool:
        at_once = list(pool.map(lambda images: _decide(proxy, *images), several))
    for expected, found in zip(alone, at_once, strict=True):
        _assert_close(_probabilities(expected), _probabilities(found))


@pytest.mark.parametrize(
    "image",
    [
        ONE[:200],
        ONE[:8] + bytes(20) + ONE[28:],
        b"\x89PNG\r\n\x1a\n",
        _png(0, 0, b""),
        _png(30_000, 30_000, zlib.compress(bytes(90_001))),
        b"GIF89a",
        b"\xff\xd8\xff\xe0",
        b"RIFF\x10\0\0\0WEBPVP8 ",
    ],
    ids=["cut", "broken", "empty", "no pixels", "too many pixels", "GIF", "JPEG", "WebP"],
)
def test_a_damaged_image_is_the_callers_mistake(proxy: Proxy, image: bytes) -> None:
    """And the engine goes on."""
    reply = proxy.decide(_asked(ONE, image))
    assert (422, ["images"]) == (reply.status_code, reply.json()["error"]["path"]), reply.text
    assert "refused by the engine" in reply.json()["error"]["message"]
    assert proxy.readiness()["ready"]
    _decide(proxy, ONE)


def test_images_beyond_the_context_are_refused_with_the_numbers(proxy: Proxy) -> None:
    """Whether the engine refuses the prompt, or only has no room left for all of the canvas."""

    def decide(words: int) -> httpx.Response:
        return proxy.decide({**_asked(ONE), "state": "yes" + " yes" * words, "deadline_ms": 30_000})

    answer = _answer(decide(0))
    tokens, width = answer["usage"]["engine_input_tokens"], answer["reading"]["canvas_width"]
    room = MAX_MODEL_LEN - width
    assert room == _answer(decide(room - tokens))["usage"]["engine_input_tokens"]
    for beyond in (1, width, width + 20):
        reply = decide(room - tokens + beyond)
        assert (413, ["state"]) == (reply.status_code, reply.json()["error"]["path"])
        assert f"{room + beyond} tokens with the questions; {room} fit." in reply.json()["error"]["message"]
