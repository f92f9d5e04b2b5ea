"""What is sent, how often, and by how many at once."""

from __future__ import annotations

import time
from typing import Any

import httpx

from structured_server.bulk.asker import HttpAsker
from tests.bulk.labelling import batch, read_csv, write_csv
from tests.bulk.sixty import Files, command
from tests.fake_server import Reply, answer, serving


def test_an_easy_server_is_asked_by_as_many_as_allowed(files: Files) -> None:
    with serving(lambda _, body: answer(body), delay=0.1) as fake:
        batch(*command(files, fake.url, "--concurrency", 6))
    assert 6 == fake.most


def test_equal_rows_are_asked_once(files: Files) -> None:
    write_csv(files[0], [{"id": str(number), "text": f"text {number % 3}"} for number in range(60)])
    with serving(lambda _, body: answer(body), delay=0.01) as fake:
        assert 0 == batch(*command(files, fake.url)).exit_code
    assert 3 == len(fake.asked)
    assert 60 == len(read_csv(files[1]))


def test_what_is_sent_is_the_questions_the_options_and_the_state(files: Files) -> None:
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


def test_large_numbers_of_a_row_reach_the_server_as_they_are(files: Files) -> None:
    source, out, questions = files
    lines = source.with_suffix(".jsonl")
    lines.write_text('{"account": 12345678901234567890123, "rate": 0.1}\n')
    with serving(lambda _, body: answer(body)) as fake:
        assert 0 == batch(lines, "-o", out, "-q", questions, "-u", fake.url).exit_code
    assert {"account": 12345678901234567890123, "rate": 0.1} == fake.asked[0]["state"]


def test_the_rows_are_those_of_the_answers_whatever_order_they_come_in(
    files: Files,
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


def test_no_token_is_written_anywhere(files: Files) -> None:
    with serving(lambda _, body: answer(body)) as fake:
        result = batch(*command(files, fake.url, "--token", "sekrit-4711"))
    texts = [each.read_bytes() for each in files[1].parent.iterdir()]
    assert not any(b"sekrit" in text for text in [*texts, result.output.encode()])
