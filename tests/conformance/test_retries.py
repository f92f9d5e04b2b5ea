"""What the SDK makes of our error bodies: whether it comes again, and which exception it raises."""

from __future__ import annotations

import time
from typing import Any

import pytest
from typesafe_sdk import (
    RetryPolicy,
    SystemOneResponse,
    TypeSafeAPIConnectionError,
    TypeSafeAPIError,
    TypeSafeAPIResponseValidationError,
    TypeSafeAPITimeoutError,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeInternalServerError,
    TypeSafeNotFoundError,
    TypeSafePermissionDeniedError,
    TypeSafeRateLimitError,
    TypeSafeUnprocessableEntityError,
)

from tests.conformance.asked import GREETING
from tests.conformance.faults import Front, Reply, Trouble
from tests.conformance.judging import judge_noul
from tests.conformance.target import ONCE, Target

HURRIED = RetryPolicy(max_retries=2, backoff_initial=0.01, backoff_max=0.05, timeout=20)
AT_ONCE = {"retry-after": "0"}
NOUL = {"type": "noul", "noul": 0.5}
USAGE = {"input_tokens": 1, "output_tokens": 1}
LEVEL_WITHOUT_TEXT = {
    "type": "score",
    "score": 0,
    "confidence": 1,
    "legend": {"0": None},
    "probabilities": {"0": 1},
}
CLASSES = {
    400: TypeSafeBadRequestError,
    401: TypeSafeAuthenticationError,
    403: TypeSafePermissionDeniedError,
    404: TypeSafeNotFoundError,
    413: TypeSafeAPIError,
}
MALFORMED: dict[str, dict[str, Any]] = {
    "answers.greeting.noul": {"model": "m", "usage": USAGE, "answers": {"greeting": {**NOUL, "noul": None}}},
    "usage.input_tokens": {
        "model": "m",
        "usage": {**USAGE, "input_tokens": 1.5},
        "answers": {"greeting": NOUL},
    },
    "usage": {"model": "m", "answers": {"greeting": NOUL}},
    "model": {"usage": {}, "answers": {"greeting": NOUL}},
    "answers.greeting.type": {"model": "m", "usage": {}, "answers": {"greeting": None}},
    "answers.greeting.legend": {"model": "m", "usage": {}, "answers": {"greeting": LEVEL_WITHOUT_TEXT}},
}


def ask(target: Target, front: Front, retry: RetryPolicy = HURRIED, **options: Any) -> SystemOneResponse:
    """Ask the server through the front."""
    with target.sdk(base_url=front.url, retry=retry, **options) as sdk:
        return sdk.system_one("hi", GREETING)


def detail(kind: str, message: str) -> dict[str, Any]:
    """Return an error body in System One's shape."""
    return {"detail": {"error_type": kind, "message": message}}


def busy(status: int, headers: dict[str, str] | None = None) -> Reply:
    """Return a refusal that passes."""
    return Reply(status, detail("overloaded_error", "busy just now"), AT_ONCE if headers is None else headers)


def test_a_429_is_tried_again_after_its_pause_and_says_which_try_it_is(target: Target, front: Front) -> None:
    front.next(busy(429, {"retry-after-ms": "20"}), busy(429))
    judge_noul(ask(target, front).answers["greeting"])
    tries = [headers.get("x-typesafe-retry-count") for headers in front.seen]
    assert [None, "1", "2"] == tries
    assert f"Bearer {target.key_sent}" == front.seen[0]["authorization"]
    assert "application/json" == front.seen[0]["accept"]
    assert front.seen[0]["x-typesafe-sdk"].startswith("typesafe-sdk/")


def test_a_429_that_stays_is_raised_with_its_pause_and_message(target: Target, front: Front) -> None:
    headers = {"retry-after": "0.05", "x-typesafe-request-id": "req_1"}
    limited = Reply(429, detail("rate_limit_error", "60 requests a minute, no more"), headers)
    front.next(limited, limited, limited)
    with pytest.raises(TypeSafeRateLimitError, match="60 requests a minute") as raised:
        ask(target, front)
    assert (50.0, "req_1") == (raised.value.retry_after_ms, raised.value.request_id)
    assert 3 == len(front.seen)


def test_a_pause_longer_than_the_sdks_budget_ends_the_tries_at_once(target: Target, front: Front) -> None:
    front.next(busy(429, {"retry-after": "3600"}))
    started = time.monotonic()
    with pytest.raises(TypeSafeRateLimitError):
        ask(target, front, RetryPolicy())
    assert time.monotonic() - started < 2
    assert 1 == len(front.seen)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
def test_an_error_that_may_pass_is_tried_again(target: Target, front: Front, status: int) -> None:
    front.next(busy(status))
    judge_noul(ask(target, front).answers["greeting"])
    assert 2 == len(front.seen)


@pytest.mark.parametrize(
    ("status", "kind"), [(503, TypeSafeInternalServerError), (408, TypeSafeAPIError)], ids=["503", "408"]
)
def test_an_error_that_does_not_pass_is_raised_with_its_message(
    target: Target, front: Front, status: int, kind: type[TypeSafeAPIError]
) -> None:
    front.next(busy(status), busy(status), busy(status))
    with pytest.raises(kind, match="busy just now") as raised:
        ask(target, front)
    assert (kind, status) == (type(raised.value), raised.value.status)
    assert 3 == len(front.seen)


@pytest.mark.parametrize(("status", "kind"), CLASSES.items(), ids=map(str, CLASSES))
def test_an_error_of_the_callers_is_raised_at_once(
    target: Target, front: Front, status: int, kind: type[TypeSafeAPIError]
) -> None:
    front.next(Reply(status, detail("some_error", f"because {status}")))
    with pytest.raises(kind, match=f"because {status}") as raised:
        ask(target, front)
    assert kind is type(raised.value)
    assert 1 == len(front.seen)


def test_what_is_wrong_with_a_field_is_raised_with_its_place(target: Target, front: Front) -> None:
    place = ["body", "questions", "u", "choice", "criteria"]
    front.next(Reply(422, {"detail": [{"loc": place, "msg": "Field required", "type": "missing"}]}))
    with pytest.raises(
        TypeSafeUnprocessableEntityError, match=r"questions\.u\.choice\.criteria: Field required"
    ):
        ask(target, front)
    assert 1 == len(front.seen)


def test_an_answer_that_does_not_come_is_a_timeout(target: Target, front: Front) -> None:
    front.next(Trouble.SILENCE)
    with pytest.raises(TypeSafeAPITimeoutError):
        ask(target, front, ONCE, timeout=0.4)


def test_a_dropped_connection_is_tried_again(target: Target, front: Front) -> None:
    front.next(Trouble.DROP)
    judge_noul(ask(target, front).answers["greeting"])
    assert 2 == len(front.seen)


def test_a_dropped_connection_is_no_timeout(target: Target, front: Front) -> None:
    front.next(Trouble.DROP)
    with pytest.raises(TypeSafeAPIConnectionError) as raised:
        ask(target, front, ONCE)
    assert not isinstance(raised.value, TypeSafeAPITimeoutError)


@pytest.mark.parametrize(("place", "body"), MALFORMED.items(), ids=MALFORMED)
def test_an_answer_that_breaks_the_format_is_refused_at_its_field(
    target: Target, front: Front, place: str, body: dict[str, Any]
) -> None:
    front.next(Reply(200, body))
    with pytest.raises(TypeSafeAPIResponseValidationError) as raised:
        ask(target, front)
    assert raised.value.field_path.startswith(place)
    assert 1 == len(front.seen)


def test_what_later_versions_may_add_is_passed_over(target: Target, front: Front) -> None:
    answers = {"greeting": {**NOUL, "x_y": 2}, "later": {"type": "of the future"}}
    front.next(Reply(200, {"model": "m", "usage": {}, "x_more": 1, "answers": answers}))
    assert {"greeting"} == set(ask(target, front).answers)


async def test_the_asynchronous_client_tries_again_and_raises_alike(target: Target, front: Front) -> None:
    async with target.async_sdk(base_url=front.url, retry=HURRIED) as sdk:
        front.next(busy(503))
        judge_noul((await sdk.system_one("hi", GREETING)).answers["greeting"])
        assert 2 == len(front.seen)
        front.next(Reply(401, detail("authentication_error", "Invalid API key")))
        with pytest.raises(TypeSafeAuthenticationError, match="Invalid API key"):
            await sdk.models.list()
