"""Start-up: the port first, then everything else."""

from __future__ import annotations

import gc
import resource
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from structured_server.api.placeholder import Placeholder
from structured_server.errors import SettingsError
from structured_server.settings import Settings

if TYPE_CHECKING:
    from structured_server.tokenizer import LoadedTokenizer

BACKLOG = 2048

COLLECT_AFTER = (50_000, 20, 20)
"""Objects left over until young ones are collected, and how often that is until older ones are."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        SettingsError: the address cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror or error}.") from None


def allow_many_connections() -> None:
    """Raise the limit on open files, often 1,024, as far as it may be: each connection takes one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve(settings: Settings) -> None:
    """Listen, answer probes from the first moment, load, and serve until told to stop.

    Raises:
        SettingsError: the address cannot be had, or the settings do not fit the tokenizer.
        TokenizerError: the tokenizer cannot be loaded.
    """
    allow_many_connections()
    listening = listen(settings.host, settings.port)
    _load_and_serve(settings, listening, Placeholder(listening))


def spare_the_collector() -> None:
    """Have the garbage collector look seldom, and never through what has been loaded.

    Requests leave no cycles behind, while each look through what hundreds of waiting ones hold stops the
    event loop for up to 0.3 s.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def _load_and_serve(settings: Settings, listening: socket.socket, placeholder: Placeholder) -> None:
    # Imported here: together they take longer than a probe waits. The tokenizer is loaded before most of it,
    # because that takes more memory than anything after it.
    from structured_server import logs

    logs.configure(settings.log_level, settings.log_format, settings.gcp_project)
    placeholder.enter("tokenizer")
    tokenizer = _tokenizer(settings)
    import uvicorn

    from structured_server import __version__, tracing
    from structured_server.api.app import create_app
    from structured_server.api.connections import impatient
    from structured_server.api.service import build

    class Server(uvicorn.Server):
        """A server that sends the placeholder away once it accepts connections itself."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            placeholder.leave()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """Stop accepting and drain; told a second time, leave at once."""
            self.force_exit = self.should_exit
            service.readiness.drain()
            super().handle_exit(sig, frame)

    service = build(settings, tokenizer)
    config = uvicorn.Config(
        create_app(service),
        loop="uvloop",
        http=impatient(settings.receive_timeout_ms / 1000),
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,  # longer than load balancers keep idle connections
        timeout_graceful_shutdown=settings.drain_s,
    )
    spare_the_collector()
    # uvicorn drains on SIGTERM and then raises it again for whoever was asked before: that is success.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    end_traces = tracing.begin(__version__) if tracing.wanted() else None
    try:
        Server(config).run(sockets=[listening])
    finally:
        if end_traces:
            end_traces()


def _tokenizer(settings: Settings) -> LoadedTokenizer | None:
    """Load the tokenizer. The embedded model brings its own, which is small."""
    if settings.backend == "embedded":
        return None
    from structured_server.tokenizer import load_tokenizer

    return load_tokenizer(settings.tokenizer_source, revision=settings.tokenizer_revision or None)
