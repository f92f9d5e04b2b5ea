"""Every decision is recorded once, on every route, and nothing of its state unless that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from structured_server.decision_log import Store, load_key
from tests.api.conftest import WORDS, serving
from tests.api.test_secrecy import BODIES, MARK, able
from tests.toy import ToyTokenizer

STATE = "stated5c27e1"
QUESTIONS = {"urgent": {"type": "noul", "instructions": "Wake somebody?"}}
SYSTEM = {"questions": [{"id": "urgent", "type": "noul", "instructions": "Wake somebody?"}]}
ASKED: dict[str, dict[str, Any]] = {
    "/decide": {"state": STATE, "questions": QUESTIONS, "read": {"think": 32}},
    "/v1/systemone": {"model": "jev-latest", "state": {"text": STATE}, "questions": QUESTIONS},
    "/v1/decisions": {
        "model": "dgemma",
        "input": STATE,
        "questions": [{"type": "predicate", "name": "urgent", "instructions": "It is urgent."}],
    },
    "/v1/chat/completions": {
        "model": "any",
        "messages": [
            {"role": "system", "content": json.dumps(SYSTEM)},
            {"role": "user", "content": STATE},
        ],
    },
}


def tokenizer() -> ToyTokenizer:
    """Return a tokenizer for all of these."""
    return ToyTokenizer((*WORDS, *(f"A{letter}" for letter in "ABCDEF")), scaffold=True)


async def recorded(path: str, body: dict[str, Any], file: Path, **settings: Any) -> tuple[Any, list[Any]]:
    """Ask once, and return the answer and the records."""
    backend = able(thought=(tokenizer().encode(STATE)))
    async with serving(backend, tokenizer(), decision_log=str(file), **settings) as client:
        headers = {"x-request-id": "req_of_mine"}
        reply = await client.post(path, json=body, headers=headers)
        assert 200 == reply.status_code, reply.text
    return reply, list(Store.read(str(file)).select())


def contents(folder: Path) -> bytes:
    """Return all that its files hold, with their names."""
    return b"".join(each.name.encode() + each.read_bytes() for each in folder.iterdir())


@pytest.mark.parametrize("path", ASKED)
async def test_a_decision_is_recorded_without_its_state(path: str, tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    reply, (record,) = await recorded(path, ASKED[path], file)
    assert (path, "req_of_mine", None) == (record["route"], record["request_id"], record["api_key"])
    assert record["id"] == record["decision"]["id"]
    assert record["id"].removeprefix("dec_") in reply.text
    assert list(record["questions"]) == list(record["decision"]["answers"])
    assert STATE in json.dumps(ASKED[path])
    assert STATE.encode() not in contents(tmp_path)


async def test_the_record_holds_the_answer_as_decide_gives_it(tmp_path: Path) -> None:
    body = {"state": STATE, "questions": QUESTIONS, "metadata": {"ticket": "7"}, "read": {"seed": 5}}
    reply, (record,) = await recorded("/decide", body, tmp_path / "log.db")
    answer = reply.json()
    for warning in answer["warnings"]:
        del warning["message"]
    assert answer == record["decision"]
    assert QUESTIONS["urgent"]["instructions"] == record["questions"]["urgent"]["instructions"]
    assert 5 == record["read"]["seed"]
    assert {"ticket": "7"} == record["decision"]["metadata"]


async def test_states_thoughts_and_messages_are_recorded_where_that_is_asked_for(tmp_path: Path) -> None:
    body = {"state": {"text": STATE}, "questions": QUESTIONS, "read": {"think": 32}}
    reply, (record,) = await recorded("/decide", body, tmp_path / "log.db", decision_log_state=True)
    assert f'{{"text":"{STATE}"}}' == record["state"]
    assert reply.json() == record["decision"]
    assert STATE in record["decision"]["reading"]["thoughts"][0]["text"]


async def test_each_item_of_a_batch_is_a_record(tmp_path: Path) -> None:
    items = [{"id": f"t{n}", "state": f"{STATE} {n}"} for n in range(20)]
    body = {"questions": QUESTIONS, "items": [*items, {"state": ""}]}
    reply, records = await recorded("/decide/batch", body, tmp_path / "log.db")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    told = {line["id"]: line["decision"]["id"] for line in lines if "decision" in line and "id" in line}
    assert len(records) == sum("decision" in line for line in lines)
    assert told == {each["item"]["id"]: each["id"] for each in records if "id" in each["item"]}
    assert 20 == len(told)


async def test_equal_requests_are_records_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    async with serving(decision_log=str(file)) as client:
        body = {"state": STATE, "questions": QUESTIONS}
        answers = [(await client.post("/decide", json=body)).json() for _ in range(3)]
    records = list(Store.read(str(file)).select())
    assert [each["id"] for each in answers] == [each["id"] for each in records]
    assert (
        1 == len({each["state_hash"] for each in records}) == len({each["prompt_hash"] for each in records})
    )


async def test_hashes_under_a_key_file_last_beyond_the_process(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    body = {"state": STATE, "questions": QUESTIONS}
    settings = {"decision_log_key_file": str(key)}
    _, (first,) = await recorded("/decide", body, tmp_path / "a.db", **settings)
    _, (second,) = await recorded("/decide", body, tmp_path / "b.db", **settings)
    _, (other,) = await recorded("/decide", body, tmp_path / "c.db")
    assert load_key(str(key)).state(STATE) == first["state_hash"] == second["state_hash"]
    assert first["prompt_hash"] == second["prompt_hash"]
    assert other["state_hash"] != first["state_hash"]
    assert other["hash_key"] != first["hash_key"]


async def test_what_is_no_decision_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    async with serving(decision_log=str(file)) as client:
        for path, body in BODIES.items():
            reply = await client.post(path, json=body | {"questions": 5, "messages": 5})
            assert 400 <= reply.status_code < 500
        await client.post("/decide/lint", json={"questions": QUESTIONS, "state": STATE})
    assert [] == list(Store.read(str(file)).select())
    assert MARK.encode() not in file.read_bytes()


async def test_without_the_setting_there_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving() as client:
        assert 200 == (await client.post("/decide", json={"state": "", "questions": QUESTIONS})).status_code
    assert b"" == contents(tmp_path)
