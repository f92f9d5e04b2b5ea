"""Log lines: one JSON object a line on standard error, as log collectors read them."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime

import orjson

from structured_server import tracing
from structured_server.settings import LogFormat

_KNOWN = frozenset({"CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"})


class JsonLines(logging.Formatter):
    """Formats a record as JSON. Fields come from `extra={"fields": {...}}`.

    Of an exception only its type and where it happened are written: its message could hold a caller's text.
    For the same reason only the first line of the record's own message is: asyncio puts the exception below.
    """

    def __init__(self, project: str = "") -> None:
        """Name traces as those of a Google Cloud project, where there is one."""
        super().__init__()
        self._project = project

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        line = {
            "severity": record.levelname if record.levelname in _KNOWN else "DEFAULT",
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "message": record.getMessage().partition("\n")[0],
            **getattr(record, "fields", {}),
        }
        if place := tracing.current():
            trace = f"projects/{self._project}/traces/{place.trace}" if self._project else place.trace
            line["logging.googleapis.com/trace"] = trace
            line["logging.googleapis.com/spanId"] = place.span
            line["logging.googleapis.com/trace_sampled"] = place.sampled
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["stack"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])
            ]
        return orjson.dumps(line, default=str).decode()


class TextLines(logging.Formatter):
    """Formats a record for people at a terminal, from the same fields and with the same discretion."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006  the reader's own
        message = record.getMessage().partition("\n")[0]
        fields = {
            name: value for name, value in getattr(record, "fields", {}).items() if name != "httpRequest"
        }
        said = "".join(f" {name}={value}" for name, value in fields.items() if value is not None)
        line = f"{at} {record.levelname.lower():8}{message}{said}"
        if record.exc_info and record.exc_info[0] is not None:
            where = traceback.extract_tb(record.exc_info[2])[-1:]
            line += f" {record.exc_info[0].__name__}" + "".join(
                f" at {at.filename}:{at.lineno}" for at in where
            )
        return line


def configure(level: str, form: LogFormat = "json", project: str = "") -> None:
    """Send the log lines of this project, and the server's own from warnings up, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if text else JsonLines(project))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("structured_server").setLevel(level.upper())
