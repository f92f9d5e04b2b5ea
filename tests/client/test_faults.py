"""What servers and networks do wrong: sent again only where that may help, and told as what it is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, Field

from structured_server.client import (
    AsyncClient,
    Client,
    ClientError,
    DeadlineExceeded,
    Loading,
    Noul,
    Overloaded,
    ServerError,
    TimedOut,
    TooManyRequests,
    UnexpectedReply,
    Unreachable,
)
from structured_server.client.errors import BY_STATUS, Refusal, Told, refusal
from structured_server.client.retrying import Attempts
from tests.engine.server import free_port
from tests.fake_server import FakeServer, Reply, Script, answer, error, serving

TOKEN = "hidden"  # noqa: S105  a made-up one
QUESTIONS = {"urgent": Noul(instructions="Wake somebody?")}


def ask(url: str, **settings: Any) -> Any:
    with Client(url, **settings) as client:
        return client.decide("x", QUESTIONS)


def ask_on_a_loop(url: str, **settings: Any) -> Any:
    async def work() -> Any:
        async with AsyncClient(url, **settings) as client:
            return await client.decide("x", QUESTIONS)

    return asyncio.run(work())


both = pytest.mark.parametrize("asking", [ask, ask_on_a_loop])
Asking = Callable[..., Any]


def first_then_right(reply: Reply | None, times: int = 1) -> Script:
    return lambda number, body: reply if number < times else answer(body)


@both
@pytest.mark.parametrize(
    "reply",
    [
        error(503, "overloaded", "no room", retry_after="0"),
        error(429, "rate_limited", "slowly", retry_after="0"),
        None,  # the connection breaks
    ],
)
def test_what_passes_is_sent_again(asking: Asking, reply: Reply | None) -> None:
    if reply is not None:
        reply[1]["error"]["retryable"] = True
    with serving(first_then_right(reply)) as server:
        assert asking(server.url).answers["urgent"].answer
    assert 2 == len(server.asked)


@both
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 500])
def test_what_would_fail_again_is_not(asking: Asking, status: int) -> None:
    with (
        serving(lambda *_: error(status, "wrong", "it is wrong")) as server,
        pytest.raises(Refusal) as caught,
    ):
        asking(server.url)
    assert (1, status) == (len(server.asked), caught.value.status)


@both
def test_the_server_says_when_to_come_back(asking: Asking) -> None:
    busy = error(503, "overloaded", "no room", retry_after="1")
    busy[1]["error"]["retryable"] = True
    with serving(first_then_right(busy)) as server:
        asking(server.url)
    first, second = server.at
    assert second - first >= 1


def test_a_date_says_it_too() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    busy = error(429, "rate_limited", "slowly", retry_after=at)
    with serving(lambda *_: busy) as server, pytest.raises(TooManyRequests) as caught:
        ask(server.url, max_retries=0)
    assert caught.value.retry_after_s is not None
    assert 0 < caught.value.retry_after_s <= 2


@both
def test_a_wait_beyond_the_callers_time_is_not_begun(asking: Asking) -> None:
    busy = error(503, "loading", "the engine loads", retry_after="30")
    busy[1]["error"]["retryable"] = True
    with serving(lambda *_: busy) as server:
        begun = time.monotonic()
        with pytest.raises(Loading, match="the engine loads"):
            asking(server.url, timeout=5.0)
    assert time.monotonic() - begun < 3
    assert 1 == len(server.asked)


@both
def test_silence_ends_at_the_callers_time(asking: Asking) -> None:
    with (
        serving(lambda _, body: answer(body), delay=1.0) as server,
        pytest.raises(TimedOut, match=r"within 0\.3 s"),
    ):
        asking(server.url, timeout=0.3)
    assert 1 == len(server.asked)


@both
def test_nobody_there_is_told_with_the_address(asking: Asking) -> None:
    url = f"http://user:hidden@127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable) as caught:
        asking(url, max_retries=1)
    assert url.replace("user:hidden@", "") in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_what_answers_in_place_of_the_server_is_told_as_such() -> None:
    with (
        serving(lambda *_: (200, {"hello": "world"}, {})) as server,
        pytest.raises(UnexpectedReply, match="no decision: model"),
    ):
        ask(server.url)
    with (
        serving(lambda *_: (404, {"message": "no such app"}, {})) as server,
        pytest.raises(UnexpectedReply, match="answered 404, not as a structured-server does"),
    ):
        ask(server.url)
    with (
        serving(lambda _, body: (200, {**answer(body)[1], "answers": {}}, {})) as server,
        pytest.raises(UnexpectedReply, match="no answer to urgent"),
    ):
        ask(server.url)


def test_an_answer_that_is_no_option_is_no_value() -> None:
    class Colour(Enum):
        RED = "red"
        BLUE = "blue"

    class Order(BaseModel):
        colour: Colour = Field(description="Which?")

    def green(_: int, body: dict[str, Any]) -> Reply:
        said = answer(body)[1]
        said["answers"]["colour"]["answer"] = "green"
        return 200, said, {}

    with (
        serving(green) as server,
        Client(server.url) as client,
        pytest.raises(UnexpectedReply, match="colour is none of its options"),
    ):
        client.decide("x", Order)


@pytest.mark.parametrize("said", [{"data": 7}, {"data": [7]}, {"models": [{}]}])
def test_a_list_of_models_that_is_none_is_told_as_such(said: Any) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=said))
    with Client("https://host", transport=transport) as client, pytest.raises(UnexpectedReply):
        client.models()


def test_what_is_not_there_yet_in_an_answer_is_kept() -> None:
    def newer(_: int, body: dict[str, Any]) -> Reply:
        said = answer(body)[1]
        said["answers"]["urgent"]["surprise"] = [1]
        return 200, {**said, "moon": "full"}, {}

    with serving(newer) as server:
        decision = ask(server.url)
    assert "full" == decision.reply.moon
    assert [1] == decision.answers["urgent"].surprise


class _Elsewhere:
    """A host that writes down what it is sent."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(dict(self.headers))
                self.send_response(200)
                self.end_headers()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@both
def test_a_token_never_goes_to_where_a_server_sends_on_to(asking: Asking) -> None:
    elsewhere = _Elsewhere()
    try:
        with (
            serving(lambda *_: (307, {}, {"Location": elsewhere.url})) as server,
            pytest.raises(UnexpectedReply, match=f"sends on to {elsewhere.url}"),
        ):
            asking(server.url, token=TOKEN)
    finally:
        elsewhere.stop()
    assert [] == elsewhere.seen
    assert "Bearer hidden" == server.headers[0]["authorization"]


def test_errors_of_system_one_servers_are_understood() -> None:
    field = {"loc": ["body", "questions", "q", "type"], "msg": "Field required", "type": "missing"}
    bodies: list[tuple[int, dict[str, Any], str]] = [
        (422, {"detail": [field]}, "questions.q.type: Field required."),
        (429, {"detail": {"error_type": "rate_limit_error", "message": "slowly"}}, "slowly"),
        (404, {"detail": "Not Found"}, "Not Found"),
        (529, {"detail": {"error_type": "overloaded_error", "message": "full"}}, "full"),
    ]
    for status, body, message in bodies:
        with (
            serving(lambda *_, status=status, body=body: (status, body, {})) as server,
            pytest.raises(Refusal, match=message) as caught,
        ):
            ask(server.url, dialect="systemone", max_retries=0)
        assert (status, status in (429, 529)) == (caught.value.status, caught.value.retryable)


@pytest.mark.parametrize("status", [400, *BY_STATUS, 413, 418, 422, 500, 502, 599])
def test_every_status_is_an_error_of_its_kind(status: int) -> None:
    found = refusal(Told(status, "code", "It is so.", "Do that."))
    assert "It is so. Do that." == str(found)
    assert isinstance(found, ServerError) == (status >= 500)
    assert isinstance(refusal(Told(503, "loading", "It loads.")), Loading)
    assert isinstance(refusal(Told(504, "x", "x")), DeadlineExceeded)
    assert isinstance(refusal(Told(503, "x", "x")), Overloaded)


def test_waits_grow_and_are_never_the_same_for_all() -> None:
    now = 0.0
    short = Attempts(100, 4, clock=lambda: now, chance=lambda: 0.0)
    long = Attempts(100, 4, clock=lambda: now, chance=lambda: 1.0)
    error = Unreachable("gone")
    assert [0.125, 0.25, 0.5, 1.0] == [short.wait_s(error) for _ in range(4)]
    assert [0.25, 0.5, 1.0, 2.0] == [long.wait_s(error) for _ in range(4)]
    with pytest.raises(ClientError, match="gone"):
        short.wait_s(error)


def test_an_address_behind_a_prefix_keeps_it() -> None:
    seen = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        return httpx.Response(200, json={"data": [{"id": "m"}]})

    with Client("https://host/models/a/v1", transport=httpx.MockTransport(reply)) as client:
        assert ["m"] == client.models()
    assert ["/models/a/v1/models"] == seen


def started(server: FakeServer) -> bool:
    return bool(server.asked)


def test_a_cancelled_call_ends_at_once() -> None:
    async def work(url: str) -> None:
        async with AsyncClient(url) as client:
            asking = asyncio.create_task(client.decide("x", QUESTIONS))
            await asyncio.sleep(0.2)
            asking.cancel()
            begun = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert time.monotonic() - begun < 0.5

    with serving(lambda _, body: answer(body), delay=1.0) as server:
        asyncio.run(work(server.url))
        assert started(server)
