"""Options that several commands have: which server to ask, and how to print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from structured_server.cli.durations import Duration
from structured_server.cli.exits import AUTH, BAD_INPUT, Refused
from structured_server.settings import PREFIX

if TYPE_CHECKING:
    import httpx

DGEM = "DGEM_"
"""What the variables of another client begin with, whose settings work here too."""


def variables(name: str) -> list[str]:
    """Return the environment variables that set an option, the first of which wins."""
    return [f"{PREFIX}{name}", f"{DGEM}{name}"]


_SERVER = (
    click.option(
        "-u",
        "--url",
        envvar=variables("URL"),
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The server, with or without /v1.",
    ),
    click.option("--token", envvar=variables("TOKEN"), help="API key to send as a bearer token."),
    click.option(
        "--timeout",
        envvar=variables("TIMEOUT"),
        type=Duration(),
        default=30.0,
        show_default=True,
        help="How long to wait: 60, 60s, 1m30s.",
    ),
    click.option(
        "--gcp-auth",
        is_flag=True,
        envvar=variables("GCP_AUTH"),
        help="Send an identity token of Google Cloud, as Cloud Run wants. A --token then goes beside it.",
    ),
    click.option("--audience", envvar=variables("AUDIENCE"), help="Whom it is for, if not the server."),
    click.option(
        "--impersonate-service-account",
        "impersonate",
        envvar=variables("IMPERSONATE_SERVICE_ACCOUNT"),
        metavar="ACCOUNT",
        help="Whose token it is, if not one's own.",
    ),
)


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a command asks, for how long it waits (seconds), and what it shows there."""

    url: str
    token: str | None = None
    timeout: float = 30.0
    gcp_auth: bool = False
    audience: str | None = None
    impersonate: str | None = None
    trust_env: bool = True  # heed proxies that the environment names

    @property
    def plain_token(self) -> str | None:
        """The token, where nothing else authenticates requests."""
        return None if self.gcp_auth else self.token

    def auth(self) -> httpx.Auth | None:
        """Return what authenticates requests where it is more than a token.

        Raises:
            Refused: it is asked for and cannot be.
        """
        if not self.gcp_auth:
            if self.audience or self.impersonate:
                raise Refused("--audience and --impersonate-service-account are for --gcp-auth.", BAD_INPUT)
            return None
        from structured_server.google_auth import AuthError, IdentityAuth

        try:
            return IdentityAuth(
                self.url, audience=self.audience, impersonate=self.impersonate, key=self.token
            )
        except AuthError as error:
            raise Refused(str(error), AUTH) from None


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)

model_option = click.option(
    "-m", "--model", envvar=variables("MODEL"), help="The model's name; the server's own by default."
)

stats_option = click.option(
    "--stats/--no-stats",
    envvar=variables("STATS"),
    default=False,
    help="Tell times, reads and tokens on standard error.",
)


def server_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options, which the command gets one by one."""
    for add in reversed(_SERVER):
        command = add(command)
    return command


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets a `Target` as `server`."""

    @functools.wraps(command)
    def with_target(
        *args: Any,
        url: str,
        token: str | None,
        timeout: float,
        gcp_auth: bool,
        audience: str | None,
        impersonate: str | None,
        **others: Any,
    ) -> None:
        command(*args, server=Target(url, token, timeout, gcp_auth, audience, impersonate), **others)

    return server_settings(with_target)
