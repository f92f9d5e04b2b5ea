"""`structured-server proxy`: a server as one's own, for tools that cannot authenticate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.options import Target, server_options

if TYPE_CHECKING:
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_EPILOG = """\b
Examples:
  structured-server proxy --to https://triage-abc.a.run.app --gcp-auth
  curl localhost:8080/ready

\b
It listens on this machine only, and refuses what a web page sends. Ctrl-C ends it.

\b
Exit codes: 0 ended, 2 wrong flags, 4 bad input, 5 the port cannot be had.
"""

HOP_BY_HOP = frozenset(
    [
        *(b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
    ]
)
"""Headers of one connection (RFC 9110, 7.6.1)."""

OWN = frozenset([b"host", b"authorization", b"x-serverless-authorization", b"content-length"])
"""What is said anew to the other side."""

LOCAL = frozenset(["localhost", "127.0.0.1", "[::1]"])
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


@click.command(epilog=_EPILOG)
@click.option("--to", required=True, metavar="URL", help="The server.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@server_options
def proxy(to: str, port: int, server: Target) -> None:
    """Serve another server on this machine, adding what authenticates requests there."""
    import dataclasses

    import uvicorn

    from structured_server.api.server import listen
    from structured_server.client.asking import Server

    target = dataclasses.replace(server, url=to)
    try:
        other = Server.at(to)
        auth = other.auth(target.plain_token, target.auth())
    except ValueError as error:
        raise Refused(str(error), BAD_INPUT) from None
    listening = listen("127.0.0.1", port)
    click.echo(f"http://127.0.0.1:{listening.getsockname()[1]} is {other.place}", err=True)
    config = uvicorn.Config(application(other, auth, target.timeout), log_level="warning", access_log=False)
    with suppress(KeyboardInterrupt):  # that is how it is to end
        uvicorn.Server(config).run(sockets=[listening])


def application(
    other: Any, auth: httpx.Auth | None, timeout: float, transport: httpx.AsyncBaseTransport | None = None
) -> Starlette:
    """Return what hands every request on to the other server, and its reply back as it comes."""
    import httpx
    from starlette.applications import Starlette
    from starlette.routing import Route

    http = httpx.AsyncClient(
        auth=auth, timeout=timeout, transport=transport, limits=httpx.Limits(max_connections=None)
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with http:
            yield

    async def hand_on(request: Request) -> Response:
        return await _handed(request, http, other)

    return Starlette(routes=[Route("/{path:path}", hand_on, methods=METHODS)], lifespan=lifespan)


async def _handed(request: Request, http: httpx.AsyncClient, other: Any) -> Response:
    import httpx
    from starlette.responses import StreamingResponse

    from structured_server.google_auth import AuthError

    if _from_elsewhere(request):
        return _problem(403, "not_for_pages", "this is for programs of this machine, not for web pages.")
    # As it was written: %2F is no slash.
    path = request.scope["raw_path"].decode("ascii")
    address = httpx.URL(f"{str(other.base).rstrip('/')}{path}").copy_with(
        query=request.scope["query_string"] or None
    )
    named = {each.strip().encode() for each in request.headers.get("connection", "").lower().split(",")}
    headers = [pair for pair in request.headers.raw if pair[0] not in HOP_BY_HOP | OWN | named]
    body = await request.body()
    sent = http.build_request(request.method, address, headers=headers, content=body)
    try:
        reply = await http.send(sent, stream=True)
    except AuthError as error:
        return _problem(502, "no_token", str(error))
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        return _problem(502, "unreachable", f"cannot reach {other.place}: {why}.")
    kept = [pair for pair in reply.headers.raw if pair[0].lower() not in HOP_BY_HOP]
    response = StreamingResponse(_pieces(reply), reply.status_code)
    response.raw_headers = [(name.lower(), value) for name, value in kept]
    return response


async def _pieces(reply: httpx.Response) -> AsyncIterator[bytes]:
    """Yield a reply as it comes; it is closed however this ends."""
    try:
        async for piece in reply.aiter_raw():
            yield piece
    finally:
        await reply.aclose()


def _from_elsewhere(request: Request) -> bool:
    """Tell whether a web page of another origin may be asking, by whatever name it finds this machine."""
    host = request.headers.get("host", "")
    if host.rsplit(":", 1)[0] not in LOCAL:
        return True
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    return request.headers.get("origin", f"http://{host}") != f"http://{host}"


def _problem(status: int, code: str, message: str) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"error": {"code": code, "message": message, "retryable": False}}, status)
