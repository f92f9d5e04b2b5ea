"""The application over real HTTP in this process, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from structured_server.api.app import create_app
from structured_server.api.service import assemble
from structured_server.backends import Backend
from structured_server.settings import Settings
from tests.engine.server import free_port
from tests.golden.record import Recorder
from tests.toy import ToyTokenizer


@contextmanager
def serving_http(backend: Backend | None = None, **settings: Any) -> Iterator[str]:
    """Serve on a free port and give the base URL."""
    known = Settings(upstream="http://engine", model="dgemma", log_level="error", **settings)
    port = free_port()
    app = create_app(assemble(known, ToyTokenizer(), backend or Recorder()))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
