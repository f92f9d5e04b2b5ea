"""`structured-server ping`: whether a server can be used, and if not, what stands in the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from structured_server.cli.asking import asking
from structured_server.cli.durations import Duration
from structured_server.cli.exits import AUTH, SERVER, Refused
from structured_server.cli.options import Target, server_options

if TYPE_CHECKING:
    from structured_server.client import Client

_EPILOG = """\b
Examples:
  structured-server ping
  structured-server ping -u https://triage-abc.a.run.app
  structured-server ping --wait 10m && structured-server decide -q questions.yaml "502 on checkout"

\b
Exit codes: 0 ready, 4 bad input, 5 not ready or no such server, 6 authentication.
"""

BETWEEN_S = 1.0
NO_TOKEN = 0
IN_FRONT = {
    NO_TOKEN: "something in front of the server wants a token. On Cloud Run: --gcp-auth.",
    401: "something in front of the server does not take this token: it has ended, or is for another "
    "audience. On Cloud Run: --gcp-auth with --audience, or gcloud auth print-identity-token.",
    403: "something in front of the server knows who asks and does not let them in. On Cloud Run: gcloud run "
    "services add-iam-policy-binding SERVICE --region REGION --member user:YOU --role roles/run.invoker.",
    404: "nothing is served at this address. On Cloud Run: look at the service's name, region and ingress "
    "with gcloud run services describe SERVICE --region REGION.",
}
"""What a platform means that answers in place of the server, by status, and what to do next.

Cloud Run says 403 to who shows no token, and also to who may not come in.
"""


@click.command(epilog=_EPILOG)
@server_options
@click.option("--wait", type=Duration(), help="Wait for so long until it is ready.")
def ping(server: Target, wait: float | None) -> None:
    """Tell whether a server is ready and lets you in, step by step."""
    with asking(server) as client:
        with_token = server.gcp_auth or server.token is not None
        _until_ready(client, wait or 0.0, with_token)
        _let_in(client, server.token is not None, with_token)
    click.echo("ready")


def _until_ready(client: Client, wait_s: float, with_token: bool) -> None:
    """Return once it is ready, saying each step.

    Raises:
        Refused: it is not, or is no such server.
    """
    from structured_server.client import NotFound, UnexpectedReply, Unreachable

    end, last = time.monotonic() + wait_s, ""
    while True:
        try:
            said = client.ready()
        except UnexpectedReply as error:
            if error.status not in (502, 503) or time.monotonic() > end:
                raise _in_front(error, with_token) from None
            said = {"ready": False, "step": "starting"}
        except Unreachable:
            if time.monotonic() > end:
                raise
            said = {"ready": False, "step": "unreachable"}
        except NotFound:
            click.echo("there is no /ready here: no structured-server, but perhaps one like it")
            return
        step = _step(said)
        if step != last:
            click.echo(f"engine: {step}")
        last = step
        if said.get("ready"):
            return
        if time.monotonic() > end:
            raise Refused("it is not ready. Wait for it with --wait 10m.", SERVER)
        time.sleep(BETWEEN_S)


def _step(said: dict[str, Any]) -> str:
    if said.get("ready"):
        return "ready"
    seconds = f" for {said['seconds']:.0f} s" if isinstance(said.get("seconds"), int | float) else ""
    problem = f": {said['problem']}" if said.get("problem") else ""
    waits = f", waits for {said['waits_for']}" if said.get("waits_for") else ""
    return f"{said.get('step', 'not ready')}{seconds}{waits}{problem}"


def _let_in(client: Client, with_key: bool, with_token: bool) -> None:
    """Say which models there are.

    Raises:
        Refused: this key is not let in.
    """
    from structured_server.client import Forbidden, Unauthenticated, UnexpectedReply

    try:
        names = client.models()
    except UnexpectedReply as error:
        raise _in_front(error, with_token) from None
    except (Unauthenticated, Forbidden) as error:
        if with_key:
            raise Refused(f"the server does not know this API key: {error}", AUTH) from None
        raise Refused(f"the server wants an API key: {error} Give it with --token.", AUTH) from None
    click.echo(f"models: {', '.join(names)}")


def _in_front(error: Any, with_token: bool) -> Refused:
    refused = error.status in (401, 403)
    means = IN_FRONT.get(NO_TOKEN if refused and not with_token else error.status)
    code = AUTH if refused else SERVER
    return Refused(f"{error.message} That is, {means}" if means else error.message, code)
