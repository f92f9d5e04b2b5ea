"""How commands ask a server: the SDK's client, and what its errors mean for whoever runs a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from structured_server.cli.exits import AUTH, BAD_INPUT, SERVER, Refused

TOLD = frozenset(["undecided", "reading", "usage", "provenance", "timings_ms", "warnings"])
"""What commands tell of an answer, beside the answers to questions."""

if TYPE_CHECKING:
    from structured_server.cli.options import Target
    from structured_server.client import Client


@contextmanager
def asking(server: Target) -> Iterator[Client]:
    """Open a client; what it raises becomes a message and an exit code.

    Raises:
        Refused: the address or the token cannot be used, or there is no answer.
    """
    from structured_server.client import Client, ClientError
    from structured_server.google_auth import AuthError

    try:
        client = Client(
            server.url,
            token=server.plain_token,
            auth=server.auth(),
            timeout=server.timeout,
            trust_env=server.trust_env,
        )
    except ValueError as error:
        raise Refused(f"{error}", BAD_INPUT) from None
    try:
        with client:
            yield client
    except ClientError as error:
        raise refused(error) from None
    except AuthError as error:
        raise Refused(str(error), AUTH) from None
    except ValueError as error:
        raise Refused(f"{error}", BAD_INPUT) from None


def refused(error: Any) -> Refused:
    """Return what an error of the client means: a message, and the exit code that scripts see."""
    from structured_server.client import Refusal, UnexpectedReply

    status = error.status if isinstance(error, Refusal | UnexpectedReply) else None
    if status in (401, 403):
        return Refused(f"{error} Use --token, or --gcp-auth on Cloud Run; `ping` tells which.", AUTH)
    if isinstance(error, Refusal) and status is not None and status < 500 and status != 429:
        return Refused(str(error), BAD_INPUT)
    return Refused(str(error), SERVER)


def ask(server: Target, body: dict[str, Any]) -> dict[str, Any]:
    """Send a decision and return the answer.

    Raises:
        Refused: there is no answer, or it is an error.
    """
    from structured_server.client import UnexpectedReply
    from structured_server.client.answers import read_reply

    with asking(server) as client:
        answer = client.decide_body(body)
        read_reply(answer)
        if missing := TOLD - answer.keys():
            raise UnexpectedReply(
                f"the reply has no {min(missing)}: {server.url} answers, not as a structured-server does.",
                200,
            )
    return answer
