"""The output and its journal after every kind of accident."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from structured_server.bulk.earlier import Earlier
from structured_server.bulk.errors import BadInput
from structured_server.bulk.files import Pair, Places
from structured_server.bulk.output import Output

HEADER = b"text,answer\n"
LINES = [b"one,1\n", b'"two\nlines",2\n', b"three,3\n"]


def digest(number: int) -> bytes:
    """Return a content digest."""
    return number.to_bytes(16, "big")


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """An output of three rows."""
    pair = Places(tmp_path / "out.csv").current
    with Output(pair, HEADER) as output:
        for number, line in enumerate(LINES):
            output.put(digest(number), line, "decided" if number else "error")
    return pair


def opened(pair: Pair) -> int:
    """Open the output, put one more row behind what is there, and return how many rows were there."""
    with Output(pair, HEADER) as output:
        done = output.done
        output.put(digest(9), b"new,9\n", "decided")
    return done


def test_an_output_is_gone_on_with_where_it_ended(pair: Pair) -> None:
    assert 3 == opened(pair)
    assert HEADER + b"".join(LINES) + b"new,9\n" == pair.output.read_bytes()
    with Output(pair, HEADER) as output:
        found = [(entry.digest, entry.status, line) for entry, line in output.lines()]
    assert [(digest(0), "error", LINES[0]), (digest(1), "decided", LINES[1])] == found[:2]
    assert (digest(9), "decided", b"new,9\n") == found[3]


@pytest.mark.parametrize("torn", [b"f", b"four,4", b"four,4\nfive"])
def test_a_torn_last_line_is_cut_off(pair: Pair, torn: bytes) -> None:
    with pair.output.open("ab") as file:
        file.write(torn)
    assert 3 == opened(pair)
    assert HEADER + b"".join(LINES) + b"new,9\n" == pair.output.read_bytes()


@pytest.mark.parametrize("cut", range(1, 32))
def test_a_torn_journal_entry_takes_its_line_with_it(pair: Pair, cut: int) -> None:
    os.truncate(pair.journal, pair.journal.stat().st_size - cut)
    assert 2 == opened(pair)
    assert HEADER + b"".join(LINES[:2]) + b"new,9\n" == pair.output.read_bytes()


@pytest.mark.parametrize("kept", range(len(HEADER) + sum(map(len, LINES))))
def test_an_output_that_lost_its_end_keeps_the_rows_that_are_whole(pair: Pair, kept: int) -> None:
    os.truncate(pair.output, kept)
    ends = [len(HEADER) + sum(map(len, LINES[:count])) for count in (1, 2, 3)]
    whole = sum(end <= kept for end in ends)
    assert whole == opened(pair)
    assert HEADER + b"".join(LINES[:whole]) + b"new,9\n" == pair.output.read_bytes()


def test_an_output_that_something_else_changed_is_left_as_it_is(pair: Pair) -> None:
    edited = pair.output.read_bytes().replace(b"three", b"seven")
    pair.output.write_bytes(edited)
    with pytest.raises(BadInput, match="something else has changed it"):
        Output(pair, HEADER)
    assert edited == pair.output.read_bytes()


def test_an_output_without_its_journal_is_left_as_it_is(pair: Pair) -> None:
    pair.journal.unlink()
    with pytest.raises(BadInput, match=r"out\.csv\.progress is missing"):
        Output(pair, HEADER)
    assert HEADER + b"".join(LINES) == pair.output.read_bytes()


def test_earlier_rows_are_found_by_their_content(pair: Pair) -> None:
    earlier = Earlier(pair, len(HEADER))
    assert (LINES[0], "error") == earlier.find(digest(0))
    assert (LINES[1], "decided") == earlier.find(digest(1))
    assert (LINES[2], "decided") == earlier.find(digest(2))
    assert earlier.find(digest(3)) is None
    earlier.close()


def test_the_next_output_takes_the_place_of_the_current_one_even_if_cut_short(pair: Pair) -> None:
    places = Places(pair.output)
    with Output(places.next, HEADER) as output:
        output.put(digest(7), b"next,7\n", "decided")
    places.next.output.replace(places.current.output)  # and then the machine stopped
    places.recover()
    assert 1 == opened(pair)
    assert HEADER + b"next,7\nnew,9\n" == pair.output.read_bytes()


def test_one_run_writes_and_a_second_is_told_who(tmp_path: Path) -> None:
    places = Places(tmp_path / "out.csv")
    with (
        places.locked(),
        pytest.raises(BadInput, match=rf"is being written by process {os.getpid()} since"),
        places.locked(),
    ):
        pytest.fail("both write")
    with places.locked():
        pass
    assert [] == list(tmp_path.iterdir())
