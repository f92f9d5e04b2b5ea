"""A limit on the time in which a request must have come in: whoever sends more slowly is sent away."""

from __future__ import annotations

import asyncio
from typing import ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Impatient(HttpToolsProtocol):
    """HTTP/1.1 as uvicorn speaks it, which itself waits for the rest of a request for ever.

    The time runs from the opening of a connection, and on a kept one from the first byte of each further
    request, to the request's last byte. How long an answer takes is no matter of this.
    """

    limit_s: ClassVar[float]
    _timer: asyncio.TimerHandle | None = None
    _in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Wait for what begins here, even if it never comes to be a request: uvicorn stops waiting then."""
        if self._is_answered():
            self._start_timer()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Wait for the rest of a request, which may have begun behind another one."""
        super().on_message_begin()
        self._in_body = False
        self._start_timer()

    def on_headers_complete(self) -> None:
        """Go on waiting, now for the body."""
        super().on_headers_complete()
        self._in_body = True

    def on_message_complete(self) -> None:
        """Stop waiting."""
        self._stop_timer()
        self._in_body = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limit_s, self._send_away)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_away(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        # A request before this one may be being answered, or this one was already: then nothing more is said.
        unsaid = not self.cycle.response_started if self._in_body else self._is_answered()
        if unsaid and not self.pipeline:
            self.transport.write(TOO_SLOW)
        self.transport.close()

    def _is_answered(self) -> bool:
        """Tell whether all requests whose head has come have been answered."""
        latest = cast("RequestResponseCycle | None", self.cycle)  # None before the first
        return latest is None or latest.response_complete


def impatient(seconds: float) -> type[HttpToolsProtocol]:
    """Return a protocol for uvicorn that waits for so long for a request to come in."""

    class Limited(Impatient):
        limit_s = seconds

    return Limited
