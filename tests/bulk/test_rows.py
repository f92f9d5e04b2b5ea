"""Files of every kind as rows: what is kept, what is an error row, what ends the run up front."""

from __future__ import annotations

from pathlib import Path

import pytest

from structured_server.bulk.errors import BadInput
from structured_server.bulk.rows import Row, Source, format_of


def rows_of(tmp_path: Path, data: bytes, suffix: str = ".csv") -> list[Row]:
    """Read bytes as a file."""
    file = tmp_path / f"in{suffix}"
    file.write_bytes(data)
    return list(Source(file, format_of(file, None, "--input-format")).rows())


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_tables_are_read_with_and_without_bom_and_with_either_end_of_line(
    tmp_path: Path, bom: bytes, end: bytes
) -> None:
    data = bom + end.join([b"id,text", b'1,"two\nlines, and ""quotes"""', b"", "2,Zürich".encode(), b'3,""'])
    rows = rows_of(tmp_path, data)
    assert [
        {"id": "1", "text": 'two\nlines, and "quotes"'},
        {"id": "2", "text": "Zürich"},
        {"id": "3", "text": ""},
    ] == [row.fields for row in rows]
    assert [(1, 2), (2, 5), (3, 6)] == [(row.number, row.line) for row in rows]


def test_tabs_separate_where_the_suffix_says_so(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, b"a\tb\nx, y\tz\n", ".tsv")
    assert {"a": "x, y", "b": "z"} == row.fields


def test_cells_too_many_or_too_few_are_an_error_of_that_row_with_its_line(tmp_path: Path) -> None:
    first, more, fewer, last = rows_of(tmp_path, b"a,b\n1,2\n1,2,3\n1\n3,4\n")
    assert (None, None) == (first.problem, last.problem)
    assert "wrong_cells: line 3 has 3 cells, the header has 2." == more.problem
    assert "wrong_cells: line 4 has 1 cells, the header has 2." == fewer.problem
    assert {"a": "1", "b": ""} == fewer.fields, "what can be kept is kept"


def test_a_quote_that_never_closes_is_an_error_of_its_row(tmp_path: Path) -> None:
    first, torn = rows_of(tmp_path, b'a,b\n1,2\n3,"four')
    assert first.problem is None
    assert torn.problem is not None
    assert torn.problem.startswith("invalid_csv: line 3:")


def test_after_a_stray_quote_the_next_row_is_read_again(tmp_path: Path) -> None:
    stray, fine = rows_of(tmp_path, b'a,b\n"1"x,2\n3,4\n')
    assert (stray.problem or "").startswith("invalid_csv: line 2:")
    assert {"a": "3", "b": "4"} == fine.fields


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b,a,c,b\n", "columns that occur twice: a, b."),
        (b"a,,c, \n", "columns without a name: 2, 4."),
        (b"", "is empty"),
        (b"a,b\n1,\xff\n", "line 2: not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_whole_table_is_said_up_front(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        rows_of(tmp_path, data)


def test_json_lines_are_objects_or_text_and_others_are_errors_of_their_line(tmp_path: Path) -> None:
    data = (
        '\ufeff{"a": 1, "n": 12345678901234567890123}\n\n"just text"\n{"a": \n[1]\n{"a": 1, "a": 2}\n'
        '{"a": NaN}\n{"a": 1e999}\n'
    ).encode()
    rows = rows_of(tmp_path, data + b'{"a": "\xff"}\n' + b"[" * 200_000 + b'\n{"torn', ".jsonl")
    good, text, *broken = rows
    assert {"a": 1, "n": 12345678901234567890123} == good.fields
    assert {"state": "just text"} == text.fields
    assert [4, 5, 6, 7, 8, 9, 10, 11] == [row.line for row in broken]
    said = ["invalid_json"] * 5 + ["invalid_text"] + ["invalid_json"] * 2
    assert said == [(row.problem or "").partition(":")[0] for row in broken]
    assert "line 6: fields that occur twice: a." in str(broken[2].problem)
    assert "line 10: nested too deeply" in str(broken[6].problem)


def test_rows_of_equal_content_have_equal_digests_and_others_have_not(tmp_path: Path) -> None:
    one, two, three, four = rows_of(tmp_path, b"a,b\n1,23\n1,23\n12,3\n1,24\n")
    assert one.digest == two.digest
    assert 3 == len({row.digest for row in (one, three, four)})


def test_a_survey_counts_and_hashes_all_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}\n{"b": 2}\n')
    survey = Source(file, "jsonl").survey()
    assert (2, ("a", "b"), False) == (survey.rows, survey.columns, survey.texts)
    file.write_text('{"a": 1}\n{"b": 3}\n')
    assert survey.digest != Source(file, "jsonl").survey().digest


def test_a_suffix_that_is_not_known_asks_for_the_option(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"in\.txt has none of the suffixes .*--input-format"):
        format_of(tmp_path / "in.txt", None, "--input-format")
    assert "tsv" == format_of(tmp_path / "in.txt", "tsv", "--input-format")
