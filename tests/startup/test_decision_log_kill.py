"""A server that is killed while it records leaves whole records behind, and goes on in the same file."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from structured_server.decision_log import Store
from structured_server.tokenizer import load_tokenizer
from tests.fake_engine import FakeEngine
from tests.proxy import Proxy, launch_proxy

TRIAGE = Path(__file__).parents[2] / "structured_server" / "data" / "triage"
QUESTIONS = {"urgent": {"type": "noul", "instructions": "Wake somebody?"}}
CLIENTS = 16
KILLS = 3


async def ask_until_it_dies(proxy: Proxy, told: dict[str, str]) -> None:
    """Ask from many sides until the server is gone, and keep the id and state of each answer."""

    async def one(client: httpx.AsyncClient, number: int) -> None:
        for count in range(1_000_000):
            # Records of many sizes, some far larger than a page of the disk's cache.
            state = f"{number} {count} " + "disk " * (count % 7) ** 4
            try:
                body = {"state": state, "questions": QUESTIONS}
                reply = await client.post(f"{proxy.url}/decide", json=body)
            except httpx.TransportError:
                return
            if reply.status_code == 200:
                told[reply.json()["id"]] = state

    async with httpx.AsyncClient(timeout=20) as client:
        await asyncio.gather(*(one(client, number) for number in range(CLIENTS)))


async def test_a_kill_tears_no_record(tmp_path: Path) -> None:
    file = tmp_path / "decisions.db"
    all_told: dict[str, str] = {}
    async with FakeEngine(load_tokenizer(str(TRIAGE))) as engine:
        arguments = (
            "--upstream", engine.url, "--model", engine.model, "--tokenizer", str(TRIAGE), "--canary-s", "0",
            "--decision-log", str(file), "--decision-log-state",
        )  # fmt: skip
        for kill in range(KILLS):
            proxy = await asyncio.to_thread(launch_proxy, tmp_path / f"log{kill}", arguments, None)
            await asyncio.to_thread(proxy.wait_until, lambda said: said["ready"])
            told: dict[str, str] = {}
            asking = asyncio.create_task(ask_until_it_dies(proxy, told))
            await asyncio.sleep(1.0 + 0.37 * kill)
            before_the_last_second = set(told)
            await asyncio.sleep(1.0)
            proxy.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(proxy.process.wait, 10)
            await asking
            with Store.read(str(file)) as store:
                records = {each["id"]: each for each in store.select()}
            with closing(sqlite3.connect(file)) as connection:
                assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
            assert before_the_last_second <= set(records), "only what was just made may be missing"
            all_told |= told
            for identifier, record in records.items():
                assert whole(record)
                assert record["state"] == all_told.get(identifier, record["state"])
    assert 100 < len(all_told)


def whole(record: dict[str, Any]) -> bool:
    """Return whether nothing of a record is missing."""
    assert QUESTIONS["urgent"]["instructions"] == record["questions"]["urgent"]["instructions"]
    assert record["id"] == record["decision"]["id"]
    probabilities: dict[str, float] = record["decision"]["answers"]["urgent"]["probabilities"]
    return abs(1 - sum(probabilities.values())) < 1e-9


def listed(folder: Path, pattern: str) -> list[str]:
    """Return the names of files."""
    return [each.name for each in folder.glob(pattern)]


async def test_what_was_decided_before_a_stop_is_all_there(tmp_path: Path) -> None:
    file = tmp_path / "decisions.db"
    async with FakeEngine(load_tokenizer(str(TRIAGE))) as engine:
        arguments = (
            "--upstream", engine.url, "--model", engine.model, "--tokenizer", str(TRIAGE),
            "--decision-log", str(file),
        )  # fmt: skip
        proxy = await asyncio.to_thread(launch_proxy, tmp_path / "log", arguments, None)
        await asyncio.to_thread(proxy.wait_until, lambda said: said["ready"])
        told: dict[str, str] = {}
        asking = asyncio.create_task(ask_until_it_dies(proxy, told))
        await asyncio.sleep(1.0)
        assert 0 == await asyncio.to_thread(proxy.stop)
        await asking
    assert [file.name] == listed(tmp_path, "decisions*"), "all is in the one file in the end"
    assert set(told) == {each["id"] for each in Store.read(str(file)).select()}


async def test_a_log_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    arguments = ("--backend", "embedded", "--decision-log", str(tmp_path / "nowhere" / "log.db"))
    proxy = launch_proxy(tmp_path / "log", arguments)
    end = time.monotonic() + 30
    while proxy.process.poll() is None:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    assert 5 == proxy.process.returncode
    assert "nowhere/log.db: No such file or directory." in proxy.log.read_text()
