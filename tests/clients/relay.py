"""Small HTTP servers that stand between a client and the server, each in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from tests.engine.server import free_port

MOST_BYTES = 32 * 1024 * 1024
HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


def application(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    """Return an application that has one handler for all requests."""
    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_route("*", "/{path:.*}", handler)
    return app


async def relayed(request: web.Request, behind: str, headers: CIMultiDict[str]) -> web.Response:
    """Send a request on with these headers, byte for byte, and return the reply."""
    passed = [(name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP]
    body = await request.read()
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(request.method, behind + request.path_qs, headers=passed, data=body) as reply,
    ):
        kept = {name: value for name, value in reply.headers.items() if name.lower() not in HOP_BY_HOP}
        return web.Response(status=reply.status, headers=kept, body=await reply.read())


@contextmanager
def running(app: web.Application) -> Iterator[str]:
    """Serve an application, and give its URL."""
    port = free_port()
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, shutdown_timeout=1)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result()
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
