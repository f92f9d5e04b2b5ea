"""The `gcloud` command: looked at freely, told to change something only where that was asked for."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from typing import Any

import click

Hints = tuple[tuple[str, str], ...]
"""What gcloud may say, in parts of it, each with what to do then."""

_ABSENT = ("NOT_FOUND", "could not be found", "Cannot find", "was not found")
LOG_IN: Hints = (
    ("gcloud auth login", "Log in: `gcloud auth login`."),
    ("credentials", "Log in: `gcloud auth login`."),
)


class GcloudFailed(click.ClickException):
    """A command failed; the message is gcloud's own, with what to do."""


class Gcloud:
    """Runs gcloud for one project. Without `act`, what would change something is only printed."""

    def __init__(self, project: str, *, act: bool, hints: Hints = ()) -> None:
        self._project = project
        self._hints = (*hints, *LOG_IN)
        self.act = act
        found = shutil.which("gcloud")
        if found is None:
            raise GcloudFailed(
                "there is no gcloud here: install the Google Cloud CLI, then `gcloud auth login`."
            )
        self._command = found

    def look(self, *arguments: str) -> Any:
        """Return what a command that changes nothing says, as JSON; None where there is no such thing.

        Raises:
            GcloudFailed: it fails otherwise.
        """
        done = self._run((*arguments, "--format=json"))
        if done.returncode == 0:
            return json.loads(done.stdout or "null")
        said = done.stderr.strip()
        if any(part in said for part in _ABSENT):
            return None
        raise self._failure(arguments, said)

    def token(self) -> str:
        """Return an identity token of whoever is logged in. It is never printed.

        Raises:
            GcloudFailed: none can be had.
        """
        done = self._run(("auth", "print-identity-token"), project=False)
        if done.returncode:
            raise self._failure(("auth", "print-identity-token"), done.stderr.strip())
        return done.stdout.strip()

    def do(self, *arguments: str, stdin: str | None = None) -> None:
        """Change something, or print the command where nothing is to be changed.

        Raises:
            GcloudFailed: it fails.
        """
        click.echo(("+ " if self.act else "would run: ") + self._written(arguments))
        if not self.act:
            return
        done = self._run((*arguments, "--quiet"), stdin=stdin)
        if done.returncode:
            raise self._failure(arguments, done.stderr.strip())

    def _run(
        self, arguments: tuple[str, ...], *, stdin: str | None = None, project: bool = True
    ) -> subprocess.CompletedProcess[str]:
        whole = [self._command, *arguments, *((f"--project={self._project}",) if project else ())]
        return subprocess.run(whole, capture_output=True, text=True, input=stdin)  # noqa: S603  gcloud

    def _written(self, arguments: tuple[str, ...]) -> str:
        return shlex.join(["gcloud", *arguments, f"--project={self._project}"])

    def _failure(self, arguments: tuple[str, ...], said: str) -> GcloudFailed:
        hint = next((f" {advice}" for part, advice in self._hints if part in said), "")
        return GcloudFailed(f"{self._written(arguments)}\n{said}{hint}")
