"""Log lines: one JSON object each, and never what an exception said."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from structured_server.logs import JsonLines, configure

PRIVATE = "the state of a customer"


class Lines:
    """A logger of its own whose lines can be read back."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(JsonLines())
        self.logger = logging.Logger("test", logging.DEBUG)  # noqa: LOG001  in no tree that others log to
        self.logger.addHandler(handler)

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
def test_a_line_has_its_severity_its_time_and_its_message(lines: Lines, level: str) -> None:
    lines.logger.log(getattr(logging, level), "engine lost: %s", "nothing answers")
    (line,) = lines.objects
    assert {"severity": level, "message": "engine lost: nothing answers"} == {
        name: value for name, value in line.items() if name != "time"
    }
    assert timedelta(0) == datetime.fromisoformat(line["time"]).utcoffset()


def test_a_level_that_collectors_do_not_know_is_the_default(lines: Lines) -> None:
    lines.logger.log(25, "odd")
    assert "DEFAULT" == lines.objects[0]["severity"]


def test_fields_stand_beside_the_message_whatever_they_hold(lines: Lines) -> None:
    lines.logger.info("request", extra={"fields": {"status": 200, "ms": 1.5, "at": timedelta(seconds=1)}})
    (line,) = lines.objects
    assert (200, 1.5, "0:00:01") == (line["status"], line["ms"], line["at"])


def test_text_with_line_breaks_stays_on_one_line(lines: Lines) -> None:
    lines.logger.info("one\ntwo\r\u2028three", extra={"fields": {"note": "a\nb"}})
    assert 1 == lines.stream.getvalue().count("\n")
    assert "a\nb" == lines.objects[0]["note"]


def test_an_exceptions_message_is_left_out_and_its_place_is_told(lines: Lines) -> None:
    def fails() -> None:
        raise ValueError(PRIVATE)

    try:
        try:
            fails()
        except ValueError as error:
            raise KeyError(PRIVATE) from error
    except KeyError:
        lines.logger.exception("unforeseen error")
    (line,) = lines.objects
    assert PRIVATE not in lines.stream.getvalue()
    assert ("ERROR", "unforeseen error", "KeyError") == (line["severity"], line["message"], line["exception"])
    assert ["test_an_exceptions_message_is_left_out_and_its_place_is_told"] == [
        frame.rpartition(" ")[2] for frame in line["stack"]
    ]
    assert f"{__file__}:" in line["stack"][0]


def test_exc_info_without_an_exception_is_nothing(lines: Lines) -> None:
    lines.logger.error("no exception here", exc_info=True)  # noqa: LOG014  that is the mistake meant
    assert "exception" not in lines.objects[0]


def test_what_asyncio_says_of_a_task_that_nobody_awaited_holds_no_message_either(lines: Lines) -> None:
    """Asyncio puts the exception's repr into the lines below its own message."""
    asyncio_log = logging.getLogger("asyncio")
    handler = lines.logger.handlers[0]
    asyncio_log.addHandler(handler)

    async def fails() -> None:
        raise ValueError(PRIVATE)

    async def scenario() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        del task
        gc.collect()

    try:
        asyncio.run(scenario())
    finally:
        asyncio_log.removeHandler(handler)
    (line,) = lines.objects
    assert ("Task exception was never retrieved", "ValueError") == (line["message"], line["exception"])
    assert PRIVATE not in lines.stream.getvalue()


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Put the root logger back as it was."""
    root, ours = logging.getLogger(), logging.getLogger("structured_server")
    before = (root.handlers[:], root.level, ours.level)
    yield root
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)


@pytest.mark.parametrize(("level", "shown"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_our_own_lines_are_shown_from_the_level_asked_for_and_others_from_warnings_up(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str], level: str, shown: int
) -> None:
    configure(level)
    ours, other = logging.getLogger("structured_server.test"), logging.getLogger("another.library")
    for logger in (ours, other):
        logger.debug("debug")
        logger.info("info")
        logger.warning("warning")
    written = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert [*["debug", "info", "warning"][3 - shown :], "warning"] == written
    assert 1 == len(root_logger.handlers)


def test_lines_go_to_standard_error_and_standard_output_stays_clean() -> None:
    code = "import logging, structured_server.logs as l; l.configure('info'); logging.warning('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "" == done.stdout
    assert "x" == json.loads(done.stderr)["message"]
