"""What a run makes of a server that refuses, breaks off, changes or is not there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from structured_server.bulk.asker import HttpAsker
from tests.bulk.fake_server import Reply, Script, answer, error, serving
from tests.bulk.labelling import ROOT, batch, manifest_of, read_csv, write_csv
from tests.engine.server import free_port

ROWS = [{"id": str(number), "text": f"text {number:03}"} for number in range(60)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """An input, an output and questions."""
    questions = tmp_path / "q.yaml"
    questions.write_text(yaml.safe_dump({"team": {"type": "choice", "criteria": {"a": None, "b": None}}}))
    return write_csv(tmp_path / "in.csv", ROWS), tmp_path / "out.csv", questions


def command(files: tuple[Path, Path, Path], url: str, *more: object) -> tuple[object, ...]:
    """Return the command's arguments."""
    source, out, questions = files
    return (source, "-o", out, "-q", questions, "-u", url, *more)


def always(reply: Reply) -> Script:
    """Return a script that gives the same reply to everything."""
    return lambda *_: reply


def complete(out: Path) -> bool:
    """Return whether all rows have an answer, in order."""
    found = read_csv(out)
    return [row["id"] for row in ROWS] == [each["id"] for each in found] and all(
        (each["_status"], each["team"]) == ("decided", "a") for each in found
    )


def test_refusals_for_lack_of_room_are_waited_out_and_slow_the_run_down(
    files: tuple[Path, Path, Path],
) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        return error(503, "overloaded", "no room.") if number % 5 == 4 else answer(body)

    with serving(script, delay=0.01) as fake:
        result = batch(*command(files, fake.url))
    assert 0 == result.exit_code, result.output
    assert complete(files[1])
    assert fake.most <= 8, "every fifth refused keeps it far from 16"
    assert 60 + 60 // 5 <= len(fake.asked) < 90


def test_an_easy_server_is_asked_by_as_many_as_allowed(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda _, body: answer(body), delay=0.1) as fake:
        batch(*command(files, fake.url, "--concurrency", 6))
    assert 6 == fake.most


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_obeyed_by_all(files: tuple[Path, Path, Path], form: str) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        if number != 10:
            return answer(body)
        later = datetime.now(UTC) + timedelta(seconds=2)
        said = "1" if form == "seconds" else format_datetime(later, usegmt=True)
        refused_at.append(time.monotonic())
        return error(429, "rate_limited", "too many.", Retry_After=said)

    refused_at: list[float] = []
    with serving(script) as fake:
        result = batch(*command(files, fake.url))
    assert complete(files[1]), result.output
    (refused,) = refused_at
    after = [at for at in fake.at if at > refused + 0.1]
    assert 30 < len(after), "the rest was asked later"
    assert min(after) >= refused + 0.95


def test_a_time_to_come_back_beyond_the_patience_stops_at_once(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda *_: error(429, "rate_limited", "the day is used up.", Retry_After="9999")) as fake:
        begun = time.monotonic()
        result = batch(*command(files, fake.url))
    assert 5 == result.exit_code
    assert "It asks to come back in 9999 s." in result.output
    assert time.monotonic() - begun < 5


def test_broken_connections_are_tried_again(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda number, body: None if number % 4 == 1 else answer(body)) as fake:
        result = batch(*command(files, fake.url))
    assert 0 == result.exit_code, result.output
    assert complete(files[1])


def test_a_server_that_goes_away_stops_the_run_which_can_be_gone_on_with(
    files: tuple[Path, Path, Path],
) -> None:
    with serving(lambda number, body: answer(body) if number < 25 else None) as fake:
        result = batch(*command(files, fake.url, "--retry-for", 1))
    assert 5 == result.exit_code
    assert "run the same command again to go on there" in result.output
    done = len(read_csv(files[1]))
    assert 1 <= done <= 25
    with serving(lambda _, body: answer(body)) as fake:
        result = batch(*command(files, fake.url))
        assert (0, True) == (result.exit_code, complete(files[1])), result.output
        assert 60 - done == len(fake.asked), "no row was asked again"


def test_a_server_that_was_never_there_exits_with_5_and_leaves_nothing(
    files: tuple[Path, Path, Path],
) -> None:
    result = batch(*command(files, f"http://127.0.0.1:{free_port()}", "--retry-for", 0.5))
    assert 5 == result.exit_code
    assert "cannot reach" in result.output
    assert not files[1].exists()
    assert "keeps what it has" not in result.output


def test_a_server_of_another_kind_exits_with_5(files: tuple[Path, Path, Path]) -> None:
    replies: tuple[Reply, ...] = ((200, {"hello": "there"}, {}), (404, {"detail": "Not Found"}, {}))
    for reply in replies:
        with serving(always(reply)) as fake:
            result = batch(*command(files, fake.url, "--retry-for", 0.3))
        assert 5 == result.exit_code
        assert "not as a structured-server does" in result.output


def test_a_key_that_is_refused_exits_with_6_at_once(files: tuple[Path, Path, Path]) -> None:
    by_a_platform: list[Reply] = [(status, {"message": "Forbidden"}, {}) for status in (401, 403)]
    by_the_server = [error(status, "wrong_key", "not a key.") for status in (401, 403)]
    for reply in (*by_a_platform, *by_the_server):
        with serving(always(reply)) as fake:
            result = batch(*command(files, fake.url))
        assert (6, 1) == (result.exit_code, len(fake.asked))
        assert "--token" in result.output


def test_rows_that_are_refused_are_error_rows_and_can_be_asked_again(files: tuple[Path, Path, Path]) -> None:
    def script(_: int, body: dict[str, Any]) -> Reply:
        if body["state"].endswith("7") and not healed:
            return error(413, "state_too_long", "state has 9 tokens.", path=("state",))
        return answer(body)

    healed = False
    with serving(script) as fake:
        result = batch(*command(files, fake.url))
        assert 3 == result.exit_code
        assert "state_too_long: 6" in result.output
        found = read_csv(files[1])
        assert [f"{tens}7" if tens else "7" for tens in range(6)] == [
            each["id"] for each in found if each["_status"] == "error"
        ]
        assert "state_too_long: state has 9 tokens." == found[7]["_error"]
        healed = True
        asked = len(fake.asked)
        assert 3 == batch(*command(files, fake.url)).exit_code, "without the option they stay"
        assert asked == len(fake.asked)
        assert 0 == batch(*command(files, fake.url, "--retry-errors")).exit_code
        assert asked + 6 == len(fake.asked)
    assert complete(files[1])
    assert ["in.csv", "out.csv", "out.csv.manifest.json", "out.csv.progress", "q.yaml"] == sorted(
        each.name for each in files[1].parent.iterdir()
    )


def test_errors_that_are_asked_again_survive_an_interruption(files: tuple[Path, Path, Path]) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply | None:
        if phase == "ill" and int(body["state"][-3:]) % 2:
            return error(422, "invalid_request", "no.", path=("state",))
        return None if phase == "broken" and number > 60 + 10 else answer(body)

    phase = "ill"
    with serving(script) as fake:
        batch(*command(files, fake.url))
        whole = files[1].read_bytes()
        phase = "broken"
        result = batch(*command(files, fake.url, "--retry-errors", "--retry-for", 0.5))
        assert 5 == result.exit_code
        assert whole == files[1].read_bytes(), "until all is made anew the output stays as it was"
        phase = "well"
        before = len(fake.asked)
        assert 0 == batch(*command(files, fake.url)).exit_code, "going on needs no option"
        assert len(fake.asked) - before < 30, "what was asked again before is not asked once more"
    assert complete(files[1])


def test_a_row_that_fails_in_the_server_is_an_error_row_after_a_few_attempts(
    files: tuple[Path, Path, Path],
) -> None:
    def script(_: int, body: dict[str, Any]) -> Reply:
        return error(502, "engine_error", "it broke.") if body["state"] == "text 030" else answer(body)

    with serving(script) as fake:
        result = batch(*command(files, fake.url))
    assert 3 == result.exit_code
    assert [("30", "engine_error: it broke.")] == [
        (each["id"], each["_error"]) for each in read_csv(files[1]) if each["_status"] == "error"
    ]
    assert 60 + 3 == len(fake.asked)


def test_a_server_that_fails_on_everything_stops_the_run_soon(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda *_: error(502, "engine_error", "it broke.")) as fake:
        result = batch(*command(files, fake.url))
    assert 5 == result.exit_code
    assert "10 rows failed one after another" in result.output
    assert len(fake.asked) < 80
    found = read_csv(files[1]) if files[1].exists() else []
    assert len(found) < 10


def test_questions_that_are_refused_stop_the_run_at_the_first_row(files: tuple[Path, Path, Path]) -> None:
    refusal = error(422, "invalid_question", "questions.team is odd.", path=("questions", "team"))
    with serving(lambda *_: refusal) as fake:
        result = batch(*command(files, fake.url))
    assert (4, 1) == (result.exit_code, len(fake.asked))
    assert "refuses every row alike: questions.team is odd." in result.output


def test_another_fingerprint_in_the_middle_stops_the_run_unless_mixing_is_allowed(
    files: tuple[Path, Path, Path],
) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        return answer(body, fingerprint="fp_1" if number < 30 else "fp_2")

    with serving(script) as fake:
        result = batch(*command(files, fake.url))
        assert 5 == result.exit_code
        assert "fingerprint is fp_2" in result.output
        assert "--allow-mixed" in result.output
        assert 1 <= len(read_csv(files[1])) <= 30
        again = batch(*command(files, fake.url))
        assert (5, True) == (again.exit_code, "fingerprint is fp_2" in again.output)
        assert 0 == batch(*command(files, fake.url, "--allow-mixed")).exit_code
    assert complete(files[1])
    assert ["fp_1", "fp_2"] == manifest_of(files[1])["fingerprints"]


def test_equal_rows_are_asked_once(files: tuple[Path, Path, Path]) -> None:
    write_csv(files[0], [{"id": str(number), "text": f"text {number % 3}"} for number in range(60)])
    with serving(lambda _, body: answer(body), delay=0.01) as fake:
        assert 0 == batch(*command(files, fake.url)).exit_code
    assert 3 == len(fake.asked)
    assert 60 == len(read_csv(files[1]))


def test_what_is_sent_is_the_questions_the_options_and_the_state(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda _, body: answer(body)) as fake:
        more = ("--samples", 3, "--timeout", 5, "--limit", 1, "--token", "key-1")
        batch(*command(files, fake.url, *more))
    assert "Bearer key-1" == fake.headers[0]["authorization"]
    (body,) = fake.asked
    assert {
        "questions": {"team": {"type": "choice", "criteria": {"a": None, "b": None}}},
        "read": {"require_draws": True, "samples": 3},
        "deadline_ms": 5000,
        "state": "text 000",
    } == body


def test_large_numbers_of_a_row_reach_the_server_as_they_are(files: tuple[Path, Path, Path]) -> None:
    source, out, questions = files
    lines = source.with_suffix(".jsonl")
    lines.write_text('{"account": 12345678901234567890123, "rate": 0.1}\n')
    with serving(lambda _, body: answer(body)) as fake:
        assert 0 == batch(lines, "-o", out, "-q", questions, "-u", fake.url).exit_code
    assert {"account": 12345678901234567890123, "rate": 0.1} == fake.asked[0]["state"]


def test_the_rows_are_those_of_the_answers_whatever_order_they_come_in(
    files: tuple[Path, Path, Path],
) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.05 if number % 7 == 0 else 0)
        return answer(body)

    write_csv(files[0], [{"id": str(n), "text": "x" * n} for n in range(1, 80)])
    with serving(script) as fake:
        assert 0 == batch(*command(files, fake.url)).exit_code
    for each in read_csv(files[1]):
        _, said, _ = answer(
            {"state": each["text"], "questions": {"team": {"type": "choice", "criteria": {"a": 0}}}}
        )
        assert repr(said["answers"]["team"]["top_probability"]) == each["team.p"]


async def test_who_asks_may_sign_in_by_any_means_of_httpx() -> None:
    body = {"state": "x", "questions": {"q": {"type": "noul"}}}
    with serving(lambda _, body: answer(body)) as fake:
        async with HttpAsker(f"{fake.url}/v1/", auth=httpx.BasicAuth("me", "pw")) as asker:
            assert "fake" == (await asker.ask(body))["model"]
    assert fake.headers[0]["authorization"].startswith("Basic ")


def test_a_disk_that_is_full_leaves_whole_rows(files: tuple[Path, Path, Path]) -> None:
    limit = f'ulimit -f 2; exec {sys.executable} -m structured_server batch "$@"'  # 2 KiB a file
    with serving(lambda _, body: answer(body)) as fake:
        arguments = map(str, command(files, fake.url))
        ended = subprocess.run(
            ["/bin/bash", "-c", limit, "batch", *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert 4 == ended.returncode, ended.stderr
        assert "File too large. What was written before is whole." in ended.stderr
        assert "Traceback" not in ended.stderr
        assert 10 < len(read_csv(files[1])) < 60
        assert 0 == batch(*command(files, fake.url)).exit_code
    assert complete(files[1])


def test_fewer_rows_than_are_there_are_not_asked_again(files: tuple[Path, Path, Path]) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        return error(422, "invalid_request", "no.", path=("state",)) if number == 3 else answer(body)

    with serving(script) as fake:
        assert 3 == batch(*command(files, fake.url)).exit_code
        result = batch(*command(files, fake.url, "--retry-errors", "--limit", 10))
    assert (4, True) == (result.exit_code, "--limit 10 would lose some" in result.output)
    assert 60 == len(read_csv(files[1]))


def test_an_input_that_loses_rows_while_it_is_read_is_not_taken_for_whole(
    files: tuple[Path, Path, Path],
) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        if number == 0:
            os.truncate(files[0], files[0].stat().st_size // 2)
        return answer(body)

    write_csv(files[0], [{**row, "text": row["text"] * 1000} for row in ROWS])
    with serving(script) as fake:
        result = batch(*command(files, fake.url, "--concurrency", 1))
    assert 4 == result.exit_code
    assert "lost rows while it was read" in result.output
    assert not manifest_of(files[1])["finished"]


def test_what_was_made_before_does_not_count_once_the_output_is_gone(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda _, body: answer(body)) as fake:
        assert 0 == batch(*command(files, fake.url)).exit_code
        files[1].unlink()
        assert 0 == batch(*command(files, fake.url, "--samples", 2)).exit_code
        assert 120 == len(fake.asked)
    assert complete(files[1])


def test_no_token_is_written_anywhere(files: tuple[Path, Path, Path]) -> None:
    with serving(lambda _, body: answer(body)) as fake:
        result = batch(*command(files, fake.url, "--token", "sekrit-4711"))
    texts = [each.read_bytes() for each in files[1].parent.iterdir()]
    assert not any(b"sekrit" in text for text in [*texts, result.output.encode()])
