"""What was read is written as it was, with the numbers of the answers behind it."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.bulk.errors import BadInput
from structured_server.bulk.flat import columns_of, flatten, refuse_collisions
from structured_server.bulk.lines import Lines
from structured_server.bulk.rows import Format, Row, Source

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAME = TEXT.filter(lambda name: bool(name.strip()) and not name.startswith("\ufeff"))
FORMATS: st.SearchStrategy[Format] = st.sampled_from(("csv", "tsv"))
QUESTIONS: dict[str, dict[str, Any]] = {
    "urgent": {"type": "noul"},
    "team": {"type": "choice", "criteria": {"a": None, "b": None}},
    "severity": {"type": "score", "criteria": ["low", "high"]},
}


def read(data: bytes, form: Format) -> list[Row]:
    """Read bytes as a file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "in"
        file.write_bytes(data)
        return list(Source(file, form).rows())


def table(rows: list[list[str]], form: Format) -> bytes:
    """Write a table as other programs do."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="," if form == "csv" else "\t").writerows(rows)
    return text.getvalue().encode()


@given(st.data(), FORMATS)
def test_the_columns_of_any_table_of_texts_are_kept(data: st.DataObject, form: Format) -> None:
    header = data.draw(st.lists(NAME, min_size=1, max_size=4, unique=True))
    cells = st.lists(TEXT, min_size=len(header), max_size=len(header))
    rows = data.draw(st.lists(cells, max_size=4))
    found = read(table([header, *rows], form), form)
    assert rows == [list(row.fields.values()) for row in found]
    assert not any(row.problem for row in found)
    lines = Lines(form, tuple(header), ("added",))
    written = lines.header + b"".join(lines.line(row, {"added": 1}) for row in found)
    assert rows == [list(row.fields.values())[:-1] for row in read(written, form)]
    for row in found:
        assert {**row.fields, "added": "1"} == lines.read(lines.line(row, {"added": 1}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), JSON, max_size=4) | st.text())
def test_a_json_line_is_kept_byte_for_byte(value: Any) -> None:
    raw = json.dumps(value)
    (row,) = read(raw.encode() + b"\n", "jsonl")
    line = Lines("jsonl", (), ("\0added",)).line(row, {"\0added": 1})
    assert raw.removesuffix("}").encode() in line
    assert {**(value if isinstance(value, dict) else {"state": value}), "\0added": 1} == json.loads(line)


def test_numbers_are_kept_as_they_were_written() -> None:
    raw = '{"big": 12345678901234567890123, "price": 1.10, "small": 1E-5, "nested": [1.50]}'
    (row,) = read(raw.encode(), "jsonl")
    assert raw[:-1].encode() in Lines("jsonl", (), ("x",)).line(row, {"x": None})
    cells = Lines("csv", ("big", "price", "small", "nested"), ()).line(row, {})
    assert b"12345678901234567890123,1.10,1E-5,[1.5]\n" == cells


SHARE = st.floats(0, 1)
ANSWER = st.fixed_dictionaries(
    {
        "status": st.sampled_from(("decided", "abstained")),
        "noul": SHARE,
        "score": st.floats(0, 1),
        "top_probability": SHARE,
        "entropy": st.floats(0, 7),
        "noise": st.fixed_dictionaries({"standard_error": st.none() | SHARE}),
        "legend": st.just({"0": "low", "1": "high"}),
    }
)
ANSWERED = {"urgent": True, "team": "b", "severity": 1}
WORDS = {"urgent": "yes", "team": "b", "severity": "high"}


@given(st.tuples(ANSWER, ANSWER, ANSWER), st.sampled_from(("csv", "jsonl")))
def test_the_numbers_of_any_answers_are_equal_once_written_and_read(
    drawn: tuple[dict[str, Any], ...], form: Format
) -> None:
    answers: dict[str, Any] = {}
    for (name, question), each in zip(QUESTIONS.items(), drawn, strict=True):
        decided = each["status"] == "decided"
        answers[name] = {**each, "type": question["type"], "answer": ANSWERED[name] if decided else None}
    undecided = [name for name, each in answers.items() if each["status"] == "abstained"]
    flat = flatten({"answers": answers, "undecided": undecided}, QUESTIONS, "")
    lines = Lines(form, (), columns_of(QUESTIONS, ""))
    found = lines.read(lines.line(Row(1, 1, {}, None, None, b""), flat))

    def number(column: str) -> float | None:
        value = found[column]
        return None if value in (None, "") else float(value)

    for name, each in answers.items():
        assert (WORDS[name] if each["status"] == "decided" else "") == (found[name] or "")
        assert each["status"] == found[f"{name}.status"]
        assert (each["noul"] if name == "urgent" else each["top_probability"]) == number(f"{name}.p")
        assert each["entropy"] == number(f"{name}.entropy")
        assert each["noise"]["standard_error"] == number(f"{name}.stderr")
    assert answers["severity"]["score"] == number("severity.score")
    assert ("undecided" if undecided else "decided") == found["_status"]


def test_a_skipped_question_has_its_status_and_no_numbers() -> None:
    skipped: dict[str, Any] = {"type": "noul", "status": "skipped", "answer": None, "reasons": []}
    flat = flatten({"answers": {"urgent": skipped}, "undecided": []}, {"urgent": {"type": "noul"}}, "out.")
    assert ("skipped", None, None) == (flat["out.urgent.status"], flat["out.urgent"], flat["out.urgent.p"])
    assert "decided" == flat["out._status"]


def test_columns_of_one_name_are_refused_with_a_way_out() -> None:
    added = columns_of(QUESTIONS, "")
    with pytest.raises(BadInput, match=r"adds: team, _status\. .*--prefix out\."):
        refuse_collisions(["id", "_status", "team"], added, "")
    refuse_collisions(["id", "_status", "team"], columns_of(QUESTIONS, "out."), "out.")
    with pytest.raises(BadInput, match=r"several outputs would be called a\.p"):
        refuse_collisions([], columns_of({"a": {}, "a.p": {}}, ""), "")


def test_no_number_is_rounded_on_its_way() -> None:
    flat = {"x": math.nextafter(0.1, 1)}
    assert f"{math.nextafter(0.1, 1)!r}\n".encode() == Lines("csv", (), ("x",)).line(
        Row(1, 1, {}, None, None, b""), flat
    )
