"""Exit codes of the commands, for scripts, and the error that carries one. 0 is success."""

from __future__ import annotations

import click

USAGE = 2  # click's own, for wrong flags
UNDECIDED = 3
DIFFERENT = 3  # replayed decisions are not as they were
WARNINGS = 3  # lint found something
BAD_INPUT = 4
SERVER = 5
AUTH = 6
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended


class Refused(click.ClickException):
    """A message for standard error, with the exit code that scripts see."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click declares it on the class and reads it from here
