"""Whatever is sent gets an answer or is the sender's mistake: 2xx or 4xx, never anything else."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structured_server.api.openapi import OPERATIONS
from tests.api.conftest import serving
from tests.golden.requests import REQUESTS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
WHOLE: list[dict[str, Any]] = [
    {
        "state": "x " * 40,
        "questions": {
            "urgent": {"type": "noul", "instructions": "Now?", "abstain": {"min_top_probability": 0.2}},
            "team": {
                "type": "choice",
                "criteria": {"compute": None, "storage": "disks"},
                "ask_if": {"urgent": [True, False]},
            },
            "level": {"type": "score", "criteria": ["low", "high"], "depends_on": ["team"], "alone": True},
        },
        "read": {
            "samples": 3,
            "entropy_threshold": {"noul": 0.1, "score": 0.5},
            "temperature": {"choice": 1.5},
            "max_reads": 40,
            "rotate": True,
            "steps": 1,
            "constrained": False,
            "think": 0,
            "long_state": "middle",
        },
        "images": [],
    },
    {"state": {}, "questions": {"q": {"type": "choice", "criteria": {f"o{i}": None for i in range(90)}}}},
]
ODD: list[Any] = [
    None, True, -1, 0, 2**70, 1e400, float("nan"), "", " ", "\x00", "\ud800", "\u2028", "x" * 3000,
    [], {}, [[]], {"": None}, "auto", "none", '"', "\\", "<turn|>", "\u2581yes", "𝔄", "\ufeff",
    {"type": "noul"}, [None] * 300, ["q"], ["urgent", "level"], {"level": [True]}, [1], 1e-320, 101.0,
    ["data:image/png;base64,iVBORw0KGgo="], ["http://127.0.0.1/x.png"], ["file:///etc/passwd"],
]  # fmt: skip


PATHS = tuple(each.paths[0] for each in OPERATIONS.values())


async def _statuses(bodies: list[bytes], path: str = "/decide", **headers: str) -> list[int]:
    async with serving() as client:
        return [(await client.post(path, content=body, headers=headers)).status_code for body in bodies]


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=200), min_size=5, max_size=20))
def test_random_bytes_are_a_callers_mistake(path: str, bodies: list[bytes]) -> None:
    assert {400, 422} >= set(asyncio.run(_statuses(bodies, path)))


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(JSON, min_size=5, max_size=20))
def test_random_json_is_a_callers_mistake(path: str, bodies: list[Any]) -> None:
    statuses = asyncio.run(_statuses([json.dumps(body).encode() for body in bodies], path))
    assert {400, 422} >= set(statuses)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=5, max_size=20))
def test_random_bytes_that_say_to_be_compressed_are_a_callers_mistake(
    encoding: str, bodies: list[bytes]
) -> None:
    starts = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
    bodies += [starts[encoding] + body for body in bodies]
    headers = {"Content-Encoding": encoding}
    assert {400} >= set(asyncio.run(_statuses(bodies, "/decide", **headers))) - {413}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                (b"--x", b"\r\n", b"--", b'Content-Disposition: form-data; name="request"', b"{}")
            )
            | st.sampled_from((b"\n", b"\r", b'; filename="a"', b"\xff", b"Content-Type: a", b": ")),
            max_size=20,
        ).map(b"".join),
        min_size=5,
        max_size=20,
    )
)
def test_forms_put_together_at_random_are_a_callers_mistake(bodies: list[bytes]) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert {400, 422} >= set(asyncio.run(_statuses(bodies, "/v1/decide", **headers)))


def _mutate(body: Any, random_: random.Random) -> Any:
    """Change one place of a request: drop it, replace it, rename it, or repeat it."""
    body = copy.deepcopy(body)
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                collect(node[key])

    collect(body)
    if not places:
        return body
    node, key = random_.choice(places)
    kind = random_.choice(("drop", "replace", "rename", "nest"))
    if kind == "drop":
        del node[key]
    elif kind == "replace":
        node[key] = random_.choice(ODD)
    elif kind == "rename" and isinstance(node, dict):
        node[str(random_.choice(ODD))] = node.pop(key)
    else:
        node[key] = {"nested": node[key]}
    return body


@pytest.mark.parametrize("seed", range(8))
def test_mutated_requests_never_break_the_server(seed: int) -> None:
    random_ = random.Random(seed)
    bodies = []
    for _ in range(250):
        body = random_.choice([*REQUESTS.values(), *WHOLE, *WHOLE, *WHOLE])
        for _ in range(random_.randint(1, 3)):
            body = _mutate(body, random_)
        text = json.dumps(body)
        if random_.random() < 0.1:
            cut = random_.randrange(len(text))
            text = text[:cut] + random_.choice(("", '"', "\\u", "\x00", "}", "NaN")) + text[cut + 1 :]
        bodies.append(text.encode("utf-8", "surrogatepass"))
    statuses = asyncio.run(_statuses(bodies))
    wrong = [(status, body[:300]) for status, body in zip(statuses, bodies, strict=True) if status >= 500]
    assert [] == wrong
    assert {200, 422} <= set(statuses)
