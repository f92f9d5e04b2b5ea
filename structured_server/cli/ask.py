"""`structured-server ask`: have the model write."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from structured_server.cli.asking import refused
from structured_server.cli.exits import AUTH, BAD_INPUT, Refused
from structured_server.cli.options import Target, model_option, server_options, stats_option, variables
from structured_server.cli.request import read_text

if TYPE_CHECKING:
    from structured_server.client.writing import Piece

_EPILOG = """\b
Examples:
  structured-server ask "Explain discrete block diffusion in two sentences."
  structured-server ask -u https://models.example.com/v1 -m google/diffusiongemma-26B-A4B-it "Why is it fast?"
  structured-server ask --think --stats - < question.txt
  structured-server ask --vertex-url https://us-central1-aiplatform.googleapis.com/v1/projects/P\\
/locations/us-central1/endpoints/E:rawPredict "Explain discrete diffusion."

\b
Any OpenAI-compatible endpoint can be asked. The embedded model only reads: it refuses.

\b
Exit codes: 0 done, 4 bad input, 5 server, 6 authentication.
"""


@click.command(epilog=_EPILOG)
@click.argument("prompt", required=False)
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Read the prompt from a file.")
@click.option("--system", help="What stands before it as the system's message.")
@server_options
@model_option
@click.option(
    "--vertex-url",
    envvar=variables("VERTEX_URL"),
    metavar="ENDPOINT",
    help="An endpoint of Vertex AI in place of --url; it is shown an access token.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Write no more than this.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="Where the engine takes one.")
@click.option("--think", is_flag=True, help="Let the model think first, on standard error.")
@click.option("--no-stream", is_flag=True, help="Wait for the whole text.")
@stats_option
def ask(
    prompt: str | None,
    file: Path | None,
    system: str | None,
    server: Target,
    vertex_url: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    think: bool,
    no_stream: bool,
    stats: bool,
) -> None:
    """Have the model answer PROMPT in its own words; - is standard input."""
    if (prompt is None) == (file is None):
        raise Refused("give the prompt once: as an argument, with --file, or as - for stdin.", BAD_INPUT)
    text = read_text(prompt, file)
    before = [{"role": "system", "content": system}] if system else []
    messages = [*before, {"role": "user", "content": text}]
    body: dict[str, Any] = {"messages": messages, "stream": not no_stream}
    given = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
    body |= {name: value for name, value in given.items() if value is not None}
    if think:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    if not no_stream:
        body["stream_options"] = {"include_usage": True}
    begun, first, usage, cut = time.monotonic(), None, None, False
    with _writing(server, vertex_url, body) as pieces:
        for piece in pieces:
            if first is None and (piece.text or piece.thought):
                first = time.monotonic() - begun
            usage = piece.usage or usage
            click.echo(_shown(piece.thought, sys.stderr.isatty()), nl=False, err=True)
            click.echo(_shown(piece.text, sys.stdout.isatty()), nl=False)
            sys.stdout.flush()
            cut = cut or piece.finish_reason == "length"
    click.echo()
    if cut:
        click.echo("It ended at the most tokens that it may write: --max-tokens.", err=True)
    if stats:
        from structured_server.cli.stats import tell_generation

        tell_generation(time.monotonic() - begun, None if no_stream else first, dict(usage or {}))


@contextmanager
def _writing(target: Target, vertex_url: str | None, body: dict[str, Any]) -> Iterator[Iterator[Piece]]:
    """Send the request, and hold the reply open.

    Raises:
        Refused: there is none, or it is an error.
    """
    import httpx

    from structured_server.client.asking import Server, connection_error
    from structured_server.client.errors import ClientError
    from structured_server.client.writing import pieces_of
    from structured_server.google_auth import AccessTokenAuth, AuthError, vertex_route

    auth: httpx.Auth | None
    try:
        if vertex_url:
            address = vertex_route(vertex_url)
            server, auth = Server.at(address), AccessTokenAuth(address)
        else:
            server = Server.at(target.url)
            address = str(server.url("/v1/chat/completions"))
            auth = server.auth(target.plain_token, target.auth())
    except ValueError as error:
        raise Refused(str(error), BAD_INPUT) from None
    except AuthError as error:
        raise Refused(str(error), BAD_INPUT) from None
    try:
        with (
            httpx.Client(auth=auth, timeout=target.timeout) as http,
            http.stream("POST", address, json=body) as response,
        ):
            yield pieces_of(response)
    except AuthError as error:
        raise Refused(str(error), AUTH) from None
    except ClientError as error:
        raise refused(error) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise refused(connection_error(error, server, target.timeout)) from None


def _shown(text: str, on_a_terminal: bool) -> str:
    """Return the text; on a terminal without what would steer it."""
    if not on_a_terminal:
        return text
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)
