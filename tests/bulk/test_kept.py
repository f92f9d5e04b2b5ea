"""What is kept of rows that are there, whatever happens to the files or is asked again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.bulk.labelling import ROOT, batch, manifest_of, read_csv, write_csv
from tests.bulk.sixty import ROWS, Files, command, complete
from tests.fake_server import Reply, answer, error, serving


def test_rows_that_are_refused_are_error_rows_and_can_be_asked_again(files: Files) -> None:
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


def test_errors_that_are_asked_again_survive_an_interruption(files: Files) -> None:
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


def test_a_disk_that_is_full_leaves_whole_rows(files: Files) -> None:
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


def test_fewer_rows_than_are_there_are_not_asked_again(files: Files) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        return error(422, "invalid_request", "no.", path=("state",)) if number == 3 else answer(body)

    with serving(script) as fake:
        assert 3 == batch(*command(files, fake.url)).exit_code
        result = batch(*command(files, fake.url, "--retry-errors", "--limit", 10))
    assert (4, True) == (result.exit_code, "--limit 10 would lose some" in result.output)
    assert 60 == len(read_csv(files[1]))


def test_an_input_that_loses_rows_while_it_is_read_is_not_taken_for_whole(
    files: Files,
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


def test_what_was_made_before_does_not_count_once_the_output_is_gone(files: Files) -> None:
    with serving(lambda _, body: answer(body)) as fake:
        assert 0 == batch(*command(files, fake.url)).exit_code
        files[1].unlink()
        assert 0 == batch(*command(files, fake.url, "--samples", 2)).exit_code
        assert 120 == len(fake.asked)
    assert complete(files[1])
