"""The `gcloud` command: looked at freely, told to change something only where that was asked for."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from typing import Any

import click

_ABSENT = ("NOT_FOUND", "was not found", "could not be found", "Cannot find")
"""What gcloud says of things that are not there, by the product that they are of."""


class GcloudFailed(click.ClickException):
    """A command failed; the message is gcloud's own, with what to do."""


class Gcloud:
    """Runs gcloud for one project. Without `act`, what would change something is only printed.

    `doctor` is the command that names what is missing, where there is one.
    """

    def __init__(self, project: str, *, act: bool, doctor: str = "") -> None:
        self._project = project
        self._doctor = doctor
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
        hint = ""
        named = f": `{self._doctor}` names it." if self._doctor else "."
        if "SERVICE_DISABLED" in said or "has not been used in project" in said:
            hint = f" Turn the API on{named}"
        elif "PERMISSION_DENIED" in said or "does not have permission" in said:
            hint = f" A role is missing{named}"
        elif "ZONE_RESOURCE_POOL_EXHAUSTED" in said or "does not have enough resources" in said:
            hint = " The zone has no such machine to give now: take another, or try again later."
        elif "Quota '" in said or "QUOTA_EXCEEDED" in said:
            hint = " Ask for quota, which may take days: https://console.cloud.google.com/iam-admin/quotas"
        elif "gcloud auth login" in said or "credentials" in said:
            hint = " Log in: `gcloud auth login`."
        return GcloudFailed(f"{self._written(arguments)}\n{said}{hint}")
