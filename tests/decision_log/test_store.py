"""The decision log's file: whole records, chosen, deleted, and bounded; other files are left alone."""

from __future__ import annotations

import json
import sqlite3
import stat
from pathlib import Path

import pytest

from structured_server.decision_log import KeyedHash, Selection, Store, load_key
from structured_server.decision_log.record import Record
from structured_server.decision_log.store import APPLICATION
from structured_server.errors import DecisionLogError, SettingsError

QUESTIONS = json.dumps({"a": {"type": "noul", "instructions": "?"}})
OTHERS = json.dumps({"b": {"type": "noul", "instructions": "!"}})


def record(number: int, *, questions: str = QUESTIONS, padding: str = "") -> Record:
    """Return a record of a decision that was made so many seconds into the epoch."""
    body = {
        "decision": {
            "metadata": {"customer": str(number % 2), "n": str(number)},
            "provenance": {"question_set": f"qs_{number % 3}"},
        },
        "padding": padding,
    }
    return Record(f"dec_{number}", float(number), f"hash{number % 4}", questions, json.dumps(body))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the log is."""
    return str(tmp_path / "decisions.db")


@pytest.fixture
def store(path: str) -> Store:
    """A log of twelve records."""
    store = Store.open(path)
    store.add(map(record, range(12)))
    return store


def identifiers(store: Store, selection: Selection) -> list[int]:
    """Return which records are selected."""
    return [int(each["id"].removeprefix("dec_")) for each in store.select(selection)]


def test_a_record_comes_back_with_its_time_and_its_questions(store: Store, path: str) -> None:
    store.close()
    first = next(Store.read(path).select())
    assert "dec_0" == first["id"]
    assert "1970-01-01T00:00:00.000+00:00" == first["time"]
    assert json.loads(QUESTIONS) == first["questions"]
    assert "0" == first["decision"]["metadata"]["n"]


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection(), list(range(12))),
        (Selection(identifiers=("dec_3", "dec_9", "nobody")), [3, 9]),
        (Selection(since=3, until=6), [3, 4, 5]),
        (Selection(state_hash="hash1"), [1, 5, 9]),
        (Selection(question_set="qs_2"), [2, 5, 8, 11]),
        (Selection(metadata=(("customer", "1"), ("n", "7"))), [7]),
        (Selection(metadata=(("customer", "1"),), since=9), [9, 11]),
        (Selection(metadata=(("'; --", "1"),)), []),
    ],
)
def test_records_are_chosen_by_all_conditions(store: Store, selection: Selection, found: list[int]) -> None:
    assert found == identifiers(store, selection)


def test_a_limit_counts_from_the_oldest(store: Store) -> None:
    assert ["dec_0", "dec_1"] == [each["id"] for each in store.select(limit=2)]


def test_what_is_deleted_is_nowhere_in_the_files(path: str, tmp_path: Path) -> None:
    store = Store.open(path)
    store.add([record(1, padding="needle" * 3000), record(2, questions=OTHERS)])
    assert 1 == store.delete(Selection(identifiers=("dec_1",)))
    assert [2] == identifiers(store, Selection())
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"needle" not in left
    assert b'"?"' not in left, "its questions went with the last decision that had them"
    assert b"!" in left
    store.close()


def test_questions_stay_while_a_decision_has_them(store: Store) -> None:
    assert 11 == store.delete(Selection(until=11))
    assert [json.loads(QUESTIONS)] == [each["questions"] for each in store.select()]


def test_a_full_file_gives_up_its_oldest_records(path: str) -> None:
    limit = 1024 * 1024
    store = Store.open(path, most_bytes=limit)
    for number in range(600):
        store.add([record(number, padding="x" * 4000)])
    kept = identifiers(store, Selection())
    assert list(range(kept[0], 600)) == kept, "the newest, without a gap"
    assert 100 < len(kept) < 256
    store.close()
    assert Path(path).stat().st_size <= limit


def test_records_are_added_all_or_none(store: Store) -> None:
    with pytest.raises(DecisionLogError, match="UNIQUE"):
        store.add([record(100), record(3)])
    assert list(range(12)) == identifiers(store, Selection())
    store.add([record(100)])
    assert 13 == store.count()


def test_two_processes_may_write_to_one_file(store: Store, path: str) -> None:
    other = Store.open(path)
    other.add([record(20)])
    store.add([record(21)])
    assert 14 == store.count() == other.count()


def test_the_file_is_its_owners_only(path: str) -> None:
    Store.open(path).close()
    Store.open(path).add([record(1)])
    for file in Path(path).parent.iterdir():
        assert 0o600 == stat.S_IMODE(file.stat().st_mode), file


def test_reading_makes_no_file(path: str) -> None:
    with pytest.raises(DecisionLogError, match="no decision log at"):
        Store.read(path)
    assert not Path(path).exists()


def test_another_programs_database_is_refused_and_left_as_it_was(path: str) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE decisions (mine)")
    before = Path(path).read_bytes()
    for opening in (Store.open, Store.read):
        with pytest.raises(DecisionLogError, match="is no decision log"):
            opening(path)
    assert before == Path(path).read_bytes()


def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path: str) -> None:
    Path(path).write_text("notes" * 1000)
    for opening in (Store.open, Store.read):
        with pytest.raises(DecisionLogError, match="not a database"):
            opening(path)
    assert "notes" * 1000 == Path(path).read_text()


def test_a_log_of_another_version_is_refused(path: str) -> None:
    with sqlite3.connect(path) as later:
        later.execute(f"PRAGMA application_id = {APPLICATION}")
        later.execute("PRAGMA user_version = 2")
        later.execute("CREATE TABLE decisions (more)")
    with pytest.raises(DecisionLogError, match="version 2; this program knows 1"):
        Store.open(path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DecisionLogError, match=r"nowhere/log\.db: No such file or directory"):
        Store.open(str(tmp_path / "nowhere" / "log.db"))


# Keyed hashes


def test_equal_states_have_equal_hashes_under_one_key_only() -> None:
    one, same, other = KeyedHash(b"k" * 16), KeyedHash(b"k" * 16), KeyedHash()
    assert one.state("a") == same.state("a")
    assert one.name == same.name
    assert one.state("a") != other.state("a")
    assert one.name != other.name
    assert KeyedHash().state("a") != other.state("a")


def test_no_two_states_with_images_run_into_each_other() -> None:
    keyed = KeyedHash(b"k" * 16)
    states = [
        keyed.state("ab"),
        keyed.state("a", [("b", b"")]),
        keyed.state("a", [("", b"b")]),
        keyed.state("a", [("", b""), ("b", b"")]),
        keyed.state("\ud800"),
        keyed.prompt([b"ab"]),
        keyed.prompt([b"a", b"b"]),
    ]
    assert len(states) == len(set(states))


def test_a_key_file_holds_a_secret_of_some_length(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n")
    assert KeyedHash(b"0123456789abcdef").name == load_key(str(file)).name
    file.write_text("short \n")
    with pytest.raises(SettingsError, match="holds 5 bytes; 16 are the least") as caught:
        load_key(str(file))
    assert caught.value.hint == "Make one with: openssl rand -hex 32"
    with pytest.raises(SettingsError, match="cannot be read"):
        load_key(str(tmp_path / "none"))
