"""Where a request belongs in a trace: W3C context in and out, and spans where a collector is wanted.

Without OpenTelemetry, or without an address to send spans to, the caller's context is read for log lines and
handed on to the engine, and `span` does nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from structured_server.errors import SettingsError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORT_S = 2.0
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_CLOUD = re.compile(r"([0-9a-fA-F]{32})(?:/(\d{1,20}))?(?:;o=(\d))?")
_NOTHING: AbstractContextManager[None] = nullcontext()

Attribute = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a trace, by its ids in hexadecimal."""

    trace: str
    span: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The W3C header."""
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


_tracer: Tracer | None = None
_place: ContextVar[Place | None] = ContextVar("place", default=None)


def place_of(headers: Mapping[str, str]) -> Place | None:
    """Return where the caller says that a request belongs: `traceparent`, else `x-cloud-trace-context`."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if match and int(match[1], 16) and int(match[2], 16):
        return Place(match[1], match[2], bool(int(match[3], 16) & 1))
    match = _CLOUD.fullmatch(headers.get("x-cloud-trace-context", ""))
    if match and int(match[1], 16):
        span = int(match[2] or 0) % 2**64
        return Place(match[1].lower(), f"{span:016x}", match[3] == "1") if span else None
    return None


def current() -> Place | None:
    """Return where the work that runs now belongs."""
    return _place.get()


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the environment names a collector, by OpenTelemetry's own variables."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return any(environ.get(name) for name in ENDPOINTS)


def begin(version: str) -> Callable[[], None]:
    """Send spans to the collector from now on, and return what sends the last ones and ends that.

    Raises:
        SettingsError: OpenTelemetry is not installed.
    """
    global _tracer
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsError(
            f"{' or '.join(ENDPOINTS)} asks for traces, which need `pip install 'structured-server[otel]'`."
        ) from None
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before these.
    named = {SERVICE_NAME: "structured-server", SERVICE_VERSION: version}
    if "OTEL_SERVICE_NAME" in os.environ:
        del named[SERVICE_NAME]
    provider = TracerProvider(resource=Resource.create(dict(named)))
    # At shutdown the last spans are sent within the time that there is to drain.
    timeout_s = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_S
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout_s)))
    _tracer = provider.get_tracer("structured_server", version)

    def end() -> None:
        global _tracer
        _tracer = None
        provider.shutdown()

    return end


@contextmanager
def request(name: str, place: Place | None) -> Iterator[Span | None]:
    """Be in a request, for which there is a span under the caller's where spans are wanted."""
    if _tracer is None:
        token = _place.set(place)
        try:
            yield None
        finally:
            _place.reset(token)
        return
    from opentelemetry.trace import SpanKind

    with (
        _tracer.start_as_current_span(
            name,
            context=_context(place),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _in(span),
    ):
        yield span


def span(name: str, **attributes: Attribute) -> AbstractContextManager[object]:
    """Be in a part of a request. An exception marks the span as failed, by its type alone."""
    return _NOTHING if _tracer is None else _span(_tracer, name, attributes)


def passed(name: str, seconds: float) -> None:
    """Tell of a part of a request that has just ended and took so long."""
    if _tracer is not None:
        now = time.time_ns()
        _tracer.start_span(name, start_time=now - round(1e9 * seconds)).end(now)


@contextmanager
def _span(tracer: Tracer, name: str, attributes: Mapping[str, Attribute]) -> Iterator[None]:
    from opentelemetry.trace import Status, StatusCode

    # Its message could hold what a caller sent.
    with (
        tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span,
        _in(span),
    ):
        try:
            yield
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


@contextmanager
def _in(span: Span) -> Iterator[None]:
    """Be at the place of a span."""
    context = span.get_span_context()
    token = _place.set(
        Place(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)
    )
    try:
        yield
    finally:
        _place.reset(token)


def _context(place: Place | None) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if place is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if place.sampled else TraceFlags.DEFAULT)
    above = SpanContext(int(place.trace, 16), int(place.span, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(above), Context())
