"""The fake engine's mix of faults: a share of the reads, chosen by their bytes and how often they came."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.backends.vllm.client import Client
from structured_server.backends.vllm.messages import COMPLETIONS
from structured_server.errors import UpstreamFailed
from tests.fake_engine import FakeEngine
from tests.fake_faults import KINDS, SLOW, Faults, Tally, chosen

ALL = tuple(KINDS)
READ = (
    b'{"prompt": [2, 3], "max_tokens": 4, "logprobs": 1, "logprob_token_ids": [16],'
    b' "vllm_xargs": {"diffusion_seed_canvas": [5, 5], "diffusion_canvas_length": 2}}'
)


@given(st.binary(), st.integers(0, 2**31), st.integers(0, 1000))
def test_the_same_bytes_meet_the_same_fault_at_the_same_time(body: bytes, seed: int, times: int) -> None:
    faults = Faults(mix=ALL, share=0.5, seed=seed)
    assert chosen(faults, body, times) == chosen(faults, body, times)


@given(st.binary(), st.integers(0, 100))
def test_without_a_share_nothing_happens_and_with_the_whole_always_something(body: bytes, times: int) -> None:
    assert chosen(Faults(mix=ALL, share=0.0), body, times) is None
    assert chosen(Faults(mix=ALL, share=1.0), body, times) in ALL


def test_a_share_is_that_share_of_reads_of_other_bytes_and_of_the_same_bytes_again() -> None:
    faults = Faults(mix=ALL, share=0.2)
    others = Counter(chosen(faults, b"%d" % i, 0) for i in range(10_000))
    again = Counter(chosen(faults, b"", i) for i in range(10_000))
    for counted in (others, again):
        assert 0.78 < counted.pop(None) / 10_000 < 0.82
        assert set(ALL) == counted.keys()
        assert min(counted.values()) > 120


def test_engines_of_other_seeds_fail_at_other_reads() -> None:
    met = [
        {i for i in range(2000) if chosen(Faults(mix=ALL, share=0.2, seed=seed), b"%d" % i, 0)}
        for seed in (1, 2)
    ]
    assert 40 < len(met[0] & met[1]) < 130  # 80 where they are independent


def test_the_tally_counts_how_often_the_same_bytes_came() -> None:
    faults, tally = Faults(mix=ALL, share=0.5), Tally()
    assert [chosen(faults, b"a", 0), chosen(faults, b"b", 0), chosen(faults, b"a", 1)] == [
        tally.met(faults, body) for body in (b"a", b"b", b"a")
    ]
    assert 3 == tally.reads


async def test_a_mix_happens_to_reads_and_is_counted(engine: FakeEngine, client: Client) -> None:
    engine.faults = Faults(mix=["failed"], share=1.0)
    with pytest.raises(UpstreamFailed):
        await client.read(COMPLETIONS, READ)
    assert (1, {"failed": 1}) == (engine.tally.reads, engine.tally.faults)


@pytest.mark.parametrize("kind", sorted(SLOW))
async def test_slow_kinds_change_nothing_but_the_time(engine: FakeEngine, client: Client, kind: str) -> None:
    right = await client.read(COMPLETIONS, READ)
    engine.faults = Faults(mix=[kind], share=1.0)  # type: ignore[list-item]
    assert right == await client.read(COMPLETIONS, READ)


def test_a_process_that_was_killed_comes_back_on_its_port_and_tells_its_tally() -> None:
    port = 0
    for _ in range(2):
        command = [sys.executable, "-m", "tests.fake_engine", "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            try:
                assert port in (0, httpx.URL(url).port)
                port = httpx.URL(url).port or 0
                httpx.post(f"{url}{COMPLETIONS}", content=READ).raise_for_status()
                assert {"reads": 1, "faults": {}} == httpx.get(f"{url}/tally").json()
            finally:
                process.kill()
