"""Log lines: one JSON object a line on standard error, as log collectors read them."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime

import orjson

_KNOWN = frozenset({"CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"})


class JsonLines(logging.Formatter):
    """Formats a record as JSON. Fields come from `extra={"fields": {...}}`.

    Of an exception only its type and where it happened are written: its message could hold a caller's text.
    For the same reason only the first line of the record's own message is: asyncio puts the exception below.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        line = {
            "severity": record.levelname if record.levelname in _KNOWN else "DEFAULT",
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "message": record.getMessage().partition("\n")[0],
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["stack"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])
            ]
        return orjson.dumps(line, default=str).decode()


def configure(level: str) -> None:
    """Send the log lines of this project, and the server's own from warnings up, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("structured_server").setLevel(level.upper())
