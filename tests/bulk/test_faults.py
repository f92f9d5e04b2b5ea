"""What a run makes of a server that refuses, breaks off, changes or is not there."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.bulk.labelling import batch, manifest_of, read_csv
from tests.bulk.sixty import Files, command, complete
from tests.engine.server import free_port
from tests.fake_server import Reply, Script, answer, error, serving


def always(reply: Reply) -> Script:
    """Return a script that gives the same reply to everything."""
    return lambda *_: reply


def test_refusals_for_lack_of_room_are_waited_out_and_slow_the_run_down(
    files: Files,
) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        return error(503, "overloaded", "no room.") if number % 5 == 4 else answer(body)

    with serving(script, delay=0.01) as fake:
        result = batch(*command(files, fake.url))
    assert 0 == result.exit_code, result.output
    assert complete(files[1])
    assert fake.most <= 8, "every fifth refused keeps it far from 16"
    assert 60 + 60 // 5 <= len(fake.asked) < 90


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_obeyed_by_all(files: Files, form: str) -> None:
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


def test_a_time_to_come_back_beyond_the_patience_stops_at_once(files: Files) -> None:
    with serving(lambda *_: error(429, "rate_limited", "the day is used up.", Retry_After="9999")) as fake:
        begun = time.monotonic()
        result = batch(*command(files, fake.url))
    assert 5 == result.exit_code
    assert "It asks to come back in 9999 s." in result.output
    assert time.monotonic() - begun < 5


def test_broken_connections_are_tried_again(files: Files) -> None:
    with serving(lambda number, body: None if number % 4 == 1 else answer(body)) as fake:
        result = batch(*command(files, fake.url))
    assert 0 == result.exit_code, result.output
    assert complete(files[1])


def test_a_server_that_goes_away_stops_the_run_which_can_be_gone_on_with(
    files: Files,
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
    files: Files,
) -> None:
    result = batch(*command(files, f"http://127.0.0.1:{free_port()}", "--retry-for", 0.5))
    assert 5 == result.exit_code
    assert "cannot reach" in result.output
    assert not files[1].exists()
    assert "keeps what it has" not in result.output


def test_a_server_of_another_kind_exits_with_5(files: Files) -> None:
    replies: tuple[Reply, ...] = ((200, {"hello": "there"}, {}), (404, {"detail": "Not Found"}, {}))
    for reply in replies:
        with serving(always(reply)) as fake:
            result = batch(*command(files, fake.url, "--retry-for", 0.3))
        assert 5 == result.exit_code
        assert "as a structured-server does" in result.output


def test_a_key_that_is_refused_exits_with_6_at_once(files: Files) -> None:
    by_a_platform: list[Reply] = [(status, {"message": "Forbidden"}, {}) for status in (401, 403)]
    by_the_server = [error(status, "wrong_key", "not a key.") for status in (401, 403)]
    for reply in (*by_a_platform, *by_the_server):
        with serving(always(reply)) as fake:
            result = batch(*command(files, fake.url))
        assert (6, 1) == (result.exit_code, len(fake.asked))
        assert "--token" in result.output


def test_a_row_that_fails_in_the_server_is_an_error_row_after_a_few_attempts(
    files: Files,
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


def test_a_server_that_fails_on_everything_stops_the_run_soon(files: Files) -> None:
    with serving(lambda *_: error(502, "engine_error", "it broke.")) as fake:
        result = batch(*command(files, fake.url))
    assert 5 == result.exit_code
    assert "10 rows failed one after another" in result.output
    assert len(fake.asked) < 80
    found = read_csv(files[1]) if files[1].exists() else []
    assert len(found) < 10


def test_questions_that_are_refused_stop_the_run_at_the_first_row(files: Files) -> None:
    refusal = error(422, "invalid_question", "questions.team is odd.", path=("questions", "team"))
    with serving(lambda *_: refusal) as fake:
        result = batch(*command(files, fake.url))
    assert (4, 1) == (result.exit_code, len(fake.asked))
    assert "refuses every row alike: questions.team is odd." in result.output


def test_another_fingerprint_in_the_middle_stops_the_run_unless_mixing_is_allowed(
    files: Files,
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
