"""`structured-server batch` against the real server with the embedded model."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.bulk.labelling import (
    INCIDENTS,
    QUESTIONS,
    batch,
    incidents,
    manifest_of,
    read_csv,
    read_jsonl,
    start_batch,
    write_csv,
)


def test_a_table_keeps_its_columns_and_gets_those_of_the_answers(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    rows = incidents(20)
    out = tmp_path / "out.csv"
    result = batch(
        write_csv(tmp_path / "in.csv", rows),
        "-o",
        out,
        "-q",
        questions,
        "-u",
        embedded_url,
        "--concurrency",
        4,
    )
    assert 0 == result.exit_code, result.output
    assert "The state is the column text." in result.output
    found = read_csv(out)
    assert rows == [{name: each[name] for name in rows[0]} for each in found]
    for row, each in zip(rows, found, strict=True):
        body = {"state": row["text"], "questions": QUESTIONS}
        alone = httpx.post(f"{embedded_url}/decide", json=body, timeout=60).json()["answers"]
        assert alone["team"]["answer"] == each["team"]
        assert alone["urgent"]["noul"] == pytest.approx(float(each["urgent.p"]), abs=1e-4)
        assert alone["severity"]["score"] == pytest.approx(float(each["severity.score"]), abs=1e-4)
        assert alone["team"]["entropy"] == pytest.approx(float(each["team.entropy"]), abs=1e-3)
        assert ("decided", "decided", "") == (each["_status"], each["severity.status"], each["_error"])
    assert "20 rows: 20 decided, 0 undecided, 0 with an error" in result.output


def test_the_same_command_again_has_nothing_left_to_do(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    command = (write_csv(tmp_path / "in.csv", incidents(5)), "-o", out, "-q", questions, "--summary", "json")
    first = batch(*command, "-u", embedded_url)
    before = out.read_bytes()
    second = batch(*command, "-u", "http://127.0.0.1:9", "--quiet")
    assert (0, before) == (second.exit_code, out.read_bytes()), second.output
    assert "Nothing is left to do." in batch(*command, "-u", "http://127.0.0.1:9").output
    assert json.loads(first.stdout) == json.loads(second.stdout), "what was counted is counted from the file"
    assert manifest_of(out)["finished"]


def test_a_limit_can_be_raised_and_the_rest_is_gone_on_with(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    source, out, whole = write_csv(tmp_path / "in.csv", incidents(30)), tmp_path / "o.csv", tmp_path / "w.csv"
    assert 0 == batch(source, "-o", out, "-q", questions, "-u", embedded_url, "--limit", 7).exit_code
    assert 7 == len(read_csv(out))
    result = batch(source, "-o", out, "-q", questions, "-u", embedded_url)
    assert "Going on after 7 of 30 rows." in result.output
    batch(source, "-o", whole, "-q", questions, "-u", embedded_url)
    assert whole.read_bytes() == out.read_bytes()


def test_json_lines_keep_what_they_are_and_broken_ones_are_error_rows(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    title = INCIDENTS[0]["title"]
    source.write_text(
        f'{{"state": "{title}", "id": 12345678901234567890123, "x": 1.10}}\n'
        '{"state": \n'
        f'"{title}"\n'
        '{"state": "  ", "id": 3}\n'
        f'{{"state": {{"alert": "{title}"}}}}\n'
    )
    result = batch(source, "-o", out, "-q", questions, "-u", embedded_url)
    assert 3 == result.exit_code, result.output
    first, torn, text, empty, nested = read_jsonl(out)
    assert '"id": 12345678901234567890123, "x": 1.10, "urgent"' in out.read_text()
    assert (title, title) == (first["state"], text["state"])
    assert first["team"] == text["team"] == nested["team"] == "compute"
    assert first["team.p"] == text["team.p"], "one was asked for both"
    assert "invalid_json: line 2: " in torn["_error"]
    assert "empty_state: line 4: state is empty." == empty["_error"]
    assert "invalid_json: 1" in result.output
    assert "--retry-errors" in result.output


def test_json_lines_become_a_table_and_a_table_json_lines(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    source, table, lines = tmp_path / "in.jsonl", tmp_path / "t.tsv", tmp_path / "l.jsonl"
    source.write_text(
        '{"text": "Disk full on the database primary", "n": 1.10}\n{"text": "a\\tb", "tags": ["x"]}\n'
    )
    common = ("-q", questions, "-u", embedded_url)
    assert 0 == batch(source, "-o", table, *common).exit_code
    header, first, _ = table.read_text().splitlines()
    assert header.startswith("text\tn\ttags\turgent\turgent.p\t")
    assert first.startswith("Disk full on the database primary\t1.10\t\t")
    assert 0 == batch(table, "-o", lines, *common, "--prefix", "again.").exit_code
    found = read_jsonl(lines)
    assert ('["x"]', "a\tb") == (found[1]["tags"], found[1]["text"])
    assert float(found[0]["team.p"]) == pytest.approx(found[0]["again.team.p"], abs=1e-4)


def test_the_whole_row_is_the_state_without_ids_and_right_answers(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    rows = [{"id": "1", "title": INCIDENTS[0]["title"], "detail": "since 04:10", "owner": "compute"}]
    source, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    result = batch(
        source, "-o", out, "-q", questions, "-u", embedded_url, "--id-column", "id", "--gold", "team=owner"
    )
    assert "The state is the columns title, detail as JSON." in result.output
    assert "team: 1 of 1 right, accuracy 1.000 (95 % interval 0.207 to 1.000)" in result.output


def test_accuracy_is_that_of_a_count_by_hand(embedded_url: str, questions: Path, tmp_path: Path) -> None:
    rows = incidents(40)
    for row in rows[::7]:
        row["owner"] = "billing"
    source, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    result = batch(
        source,
        "-o",
        out,
        "-q",
        questions,
        "-u",
        embedded_url,
        "--gold",
        "team=owner",
        "--summary",
        "json",
        "--quiet",
    )
    gold = json.loads(result.output)["questions"]["team"]["gold"]
    found = read_csv(out)
    labelled = [each for each in found if each["owner"]]
    assert (len(labelled), sum(each["owner"] == each["team"] for each in labelled)) == (
        gold["n"],
        gold["right"],
    )
    assert 0 < gold["right"] < gold["n"]
    assert gold["n"] == sum(line["n"] for line in gold["reliability"])
    assert len(found) - len(labelled) == gold["unlabelled"]


def test_an_estimate_asks_fifty_rows_and_writes_nothing(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    rows = incidents(120)
    rows[0]["text"] = "disk " * 7000
    source = write_csv(tmp_path / "in.csv", rows)
    result = batch(
        source,
        "-q",
        questions,
        "-u",
        embedded_url,
        "--estimate",
        "--price-per-hour",
        3.6,
        "--summary",
        "json",
        "--quiet",
    )
    assert 0 == result.exit_code, result.output
    found = json.loads(result.output)
    assert (120, 50, 0.02, {"state_too_long": 1}) == (
        found["rows"], found["asked"], found["too_long_share"], found["errors"],
    )  # fmt: skip
    assert found["seconds"] == pytest.approx(120 / found["rows_per_second"])
    assert found["cost"] == pytest.approx(found["seconds"] / 1000)
    assert {"in.csv", questions.name} == {each.name for each in tmp_path.iterdir()}
    assert (
        "120 rows would take about" in batch(source, "-q", questions, "-u", embedded_url, "--estimate").output
    )


def test_the_help_has_examples_and_exit_codes() -> None:
    said = batch("--help").output
    assert "structured-server batch" in said.split("Examples:")[1]
    assert "6 authentication" in said


def test_an_input_without_rows_gives_an_output_without_rows(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("text\n")
    assert 0 == batch(source, "-o", out, "-q", questions, "-u", embedded_url).exit_code
    assert [] == read_csv(out)
    assert 4 == batch(source, "-q", questions, "-u", embedded_url, "--estimate").exit_code


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    source, out = write_csv(tmp_path / "in.csv", incidents(400)), tmp_path / "out.csv"
    command = (source, "-o", out, "-q", questions, "-u", embedded_url, "--concurrency", 1)
    process = start_batch(*command)
    journal = tmp_path / "out.csv.progress"
    end = time.monotonic() + 60
    while not (journal.exists() and journal.stat().st_size > 32 * 5):
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert 130 == process.returncode, said
    assert "run the same command again" in said
    assert "Traceback" not in said
    done = len(read_csv(out))
    assert 5 <= done < 400
    assert done == manifest_of(out)["counts"]["rows"]
    assert f"Going on after {done} of 400 rows." in batch(*command).output
    assert incidents(400) == [{k: each[k] for k in ("id", "text", "owner")} for each in read_csv(out)]
