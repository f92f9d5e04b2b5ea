"""The command line of `jev-eval`, on seven labelled alarms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.clients.jev_eval import jev_eval
from tests.clients.ticket import LEVELS, assert_choice, assert_score

ALARMS = Path(__file__).parent / "alarms.jsonl"
TEAMS = ("compute", "networking", "storage", "billing")
QUESTIONS = (
    *("-q", "urgent:noul"),
    *("-q", f"team:choice({','.join(TEAMS)})"),
    *("-q", f"severity:score({','.join(LEVELS)})"),
)


def records(cache: Path) -> list[dict[str, Any]]:
    """Return what a run wrote: one record for each row's question."""
    return [json.loads(line) for line in cache.read_text("utf-8").splitlines()]


def right(record: dict[str, Any]) -> bool:
    """Tell whether an answer is the gold one, as jev-eval's own documentation defines it."""
    answer, gold = record["answer"], record["gold"]
    if record["type"] == "noul":
        return bool((answer["noul"] >= 0.5) == gold)
    if record["type"] == "choice":
        return bool(answer["choice"] == gold)
    return bool(LEVELS[round(answer["score"])] == gold)


def test_it_asks_every_row_and_reports_on_the_answers(tmp_path: Path, server: str) -> None:
    cache = tmp_path / "run.jsonl"
    ran = jev_eval(server, tmp_path, "run", "--data", ALARMS, *QUESTIONS, "--cache", cache)
    assert (0, True) == (ran.returncode, "7 rows, 20 answers (20 usable)" in ran.stderr), ran.stderr
    found = records(cache)
    for record in found:
        answer = record["answer"]
        assert record["type"] == answer["type"]
        if record["type"] == "choice":
            assert_choice(answer["choice"], answer["probabilities"], sorted(TEAMS))  # the cache is sorted
        elif record["type"] == "score":
            assert_score(answer["score"], {int(i): p for i, p in answer["probabilities"].items()})
    assert all(record["input_tokens"] > 0 for record in found)

    reported = jev_eval(server, tmp_path, "report", "--cache", cache, "--slice", "meta.source").stdout
    for name, count in (("urgent", 7), ("team", 6), ("severity", 7)):
        said = re.search(rf"== {name} \(\w+\) n={count}\naccuracy +([\d.]+)%", reported)
        assert said, reported
        accuracy = sum(right(record) for record in found if record["id"] == name) / count
        assert f"{100 * accuracy:.1f}" == said[1]


def test_a_second_run_resumes_and_does_not_ask_again(tmp_path: Path, server: str) -> None:
    cache = tmp_path / "run.jsonl"
    jev_eval(server, tmp_path, "run", "--data", ALARMS, *QUESTIONS, "--cache", cache)
    first = records(cache)
    nobody_there = "http://127.0.0.1:9"
    again = jev_eval(nobody_there, tmp_path, "run", "--data", ALARMS, *QUESTIONS, "--cache", cache)
    assert (0, first) == (again.returncode, records(cache))


def test_a_row_that_is_refused_is_recorded_and_the_others_are_answered(tmp_path: Path, server: str) -> None:
    data, cache = tmp_path / "data.jsonl", tmp_path / "run.jsonl"
    rows = [{"state": None, "labels": {"urgent": True}}, {"state": "Disk full.", "labels": {"urgent": True}}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert 0 == jev_eval(server, tmp_path, "run", "--data", data, *QUESTIONS, "--cache", cache).returncode
    refused, answered = records(cache)
    assert (None, True) == (refused["answer"], refused["error"].startswith("HTTP 422: "))
    assert 0 <= answered["answer"]["noul"] <= 1


@pytest.mark.parametrize(("model", "keyed", "status"), [("gpt-6", False, 404), ("jev-latest", True, 401)])
def test_an_unknown_model_and_a_wrong_key_end_the_run(
    model: str, keyed: bool, status: int, tmp_path: Path, server: str, keyed_server: str
) -> None:
    asked = ("--data", ALARMS, *QUESTIONS, "--cache", "run.jsonl", "--model", model)
    ran = jev_eval(keyed_server if keyed else server, tmp_path, "run", *asked)
    assert (2, True) == (ran.returncode, f"HTTP Error {status}" in ran.stderr), ran.stderr
