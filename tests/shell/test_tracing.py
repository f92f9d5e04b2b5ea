"""Where a request belongs in a trace, as its headers say it."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from structured_server import tracing
from structured_server.errors import SettingsError
from structured_server.logs import JsonLines, TextLines
from structured_server.tracing import Place, place_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("headers", "place"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, Place(TRACE, SPAN, True)),
        ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, Place(TRACE, SPAN, False)),
        ({"traceparent": f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be"}, Place(TRACE, SPAN, True)),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, None),
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, None),
        ({"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"}, None),
        ({"traceparent": "nonsense"}, None),
        ({}, None),
        ({"x-cloud-trace-context": f"{TRACE}/255;o=1"}, Place(TRACE, "00000000000000ff", True)),
        ({"x-cloud-trace-context": f"{TRACE}/255"}, Place(TRACE, "00000000000000ff", False)),
        ({"x-cloud-trace-context": TRACE}, None),
        (
            {"x-cloud-trace-context": f"{TRACE}/{'9' * 20}"},
            Place(TRACE, f"{int('9' * 20) % 2**64:016x}", False),
        ),
        ({"x-cloud-trace-context": "\u0661/1"}, None),
        (
            {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-cloud-trace-context": f"{'1' * 32}/1"},
            Place(TRACE, SPAN, True),
        ),
    ],
)
def test_the_callers_place_is_read_from_either_header(headers: dict[str, str], place: Place | None) -> None:
    assert place == place_of(headers)


async def test_each_request_has_its_own_place_and_leaves_none_behind() -> None:
    async def be_in(place: Place) -> Place | None:
        with tracing.request("GET", place):
            await asyncio.sleep(0)
            return tracing.current()

    one, other = Place("1" * 32, "1" * 16, True), Place("2" * 32, "2" * 16, False)
    assert [one, other] == list(await asyncio.gather(be_in(one), be_in(other)))
    assert tracing.current() is None


def test_lines_in_a_request_carry_its_place_in_cloud_loggings_fields() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "said", (), None)
    with tracing.request("GET", Place(TRACE, SPAN, True)):
        line = JsonLines("my-project").format(record)
    assert f'"logging.googleapis.com/trace":"projects/my-project/traces/{TRACE}"' in line
    assert f'"logging.googleapis.com/spanId":"{SPAN}"' in line
    assert '"logging.googleapis.com/trace_sampled":true' in line
    assert "logging.googleapis.com" not in JsonLines("my-project").format(record)


def test_lines_for_people_are_short_and_as_discreet() -> None:
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "said\nmore", (), None)
    record.fields = {"route": "/decide", "status": None, "httpRequest": {"status": 200}}
    assert TextLines().format(record)[8:] == " warning said route=/decide"
    try:
        int("the text of a state")
    except ValueError:
        record.exc_info = sys.exc_info()
    said = TextLines().format(record)
    assert "ValueError at " in said
    assert "text of a state" not in said
    assert 1 == len(said.splitlines())


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_spans_are_wanted_where_the_environment_names_a_collector(
    environ: dict[str, str], wanted: bool
) -> None:
    assert wanted == tracing.wanted(environ)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"structured-server\[otel\]"):
        tracing.begin("0")
