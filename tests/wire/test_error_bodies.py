"""Errors in each wire format: every kind has a body, a status and a type, in the shape that is documented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from structured_server import errors
from structured_server.api.errors import DECIDE, OPENAI, SYSTEM_ONE, Dialect, InternalError, error_response
from structured_server.errors import (
    InvalidQuestion,
    InvalidRequest,
    MalformedBody,
    MissingKey,
    Overloaded,
    StateTooLong,
    StructuredServerError,
    UnknownModel,
    UpstreamTimeout,
    WrongKey,
)
from structured_server.wire.decide_response import ErrorResponse
from structured_server.wire.error_bodies import (
    OPENAI_CODES,
    OPENAI_TYPES,
    SYSTEMONE_TYPES,
    OpenAIErrorResponse,
    SystemOneErrorResponse,
)

SHAPES: dict[str, type[BaseModel]] = {
    DECIDE.name: ErrorResponse,
    SYSTEM_ONE.name: SystemOneErrorResponse,
    OPENAI.name: OpenAIErrorResponse,
}


def kinds(kind: type[StructuredServerError] = StructuredServerError) -> list[type[StructuredServerError]]:
    """Return the errors of the tree from here on."""
    below = [each for child in kind.__subclasses__() for each in kinds(child)]
    return [kind, *below]


LEAVES = [
    each
    for each in kinds()
    if (each.__module__ == errors.__name__ and not each.__subclasses__()) or each is InternalError
]


def answered(error: StructuredServerError, dialect: Dialect) -> tuple[int, dict[str, Any]]:
    response = error_response(error, "req_1", dialect)
    return response.status_code, json.loads(bytes(response.body))


@pytest.mark.parametrize("dialect", [DECIDE, SYSTEM_ONE, OPENAI], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", LEAVES)
def test_every_error_has_a_body_of_the_documented_shape_in_every_format(
    kind: type[StructuredServerError], dialect: Dialect
) -> None:
    status, body = answered(kind("was wrong."), dialect)
    assert 400 <= status < 600
    SHAPES[dialect.name].model_validate(body)


@pytest.mark.parametrize("kind", LEAVES)
def test_only_what_its_sender_can_mend_is_called_an_error_of_the_request(
    kind: type[StructuredServerError],
) -> None:
    """A client raises by status, people read the type: both must say whose turn it is."""
    status, body = answered(kind("was wrong."), OPENAI)
    key = issubclass(kind, MissingKey | WrongKey)
    mended = issubclass(kind, errors.CallerError | errors.RateLimited)  # a 429 says of itself that it passes
    assert (issubclass(kind, errors.CallerError) and not key) == (
        "invalid_request_error" == body["error"]["type"]
    )
    assert mended == (status < 500)
    for dialect in (DECIDE, SYSTEM_ONE):
        assert mended == (answered(kind("was wrong."), dialect)[0] < 500)


def test_every_class_in_the_tables_is_in_the_tree() -> None:
    assert {*SYSTEMONE_TYPES, *OPENAI_TYPES, *OPENAI_CODES} <= set(kinds())


@pytest.mark.parametrize(
    ("error", "system_one", "openai"),
    [
        (StateTooLong("x."), (413, "max_tokens_exceeded"), (413, "context_length_exceeded")),
        (UnknownModel("x."), (404, "not_found_error"), (404, "model_not_found")),
        (MissingKey("x."), (403, "authentication_error"), (401, "invalid_api_key")),
        (WrongKey("x."), (401, "authentication_error"), (401, "invalid_api_key")),
        (Overloaded("x."), (529, "overloaded_error"), (503, "overloaded")),
        (errors.DrawsMissing("x."), (503, "overloaded_error"), (503, "draws_missing")),
        (errors.Loading("x."), (503, "overloaded_error"), (503, "loading")),
        (errors.RateLimited("x."), (429, "rate_limit_error"), (429, "rate_limit_exceeded")),
        (errors.IdentityUnchecked("x."), (503, "overloaded_error"), (503, "identity_unchecked")),
        (errors.DeadlineExceeded("x."), (504, "upstream_timeout"), (504, "deadline_exceeded")),
        (UpstreamTimeout("x."), (502, "upstream_timeout"), (502, "engine_error")),
        (errors.UpstreamFailed("x."), (502, "upstream_error"), (502, "engine_error")),
        (errors.BodyTooLarge("x."), (413, "invalid_request_error"), (413, "body_too_large")),
        (errors.UnsupportedEncoding("x."), (415, "invalid_request_error"), (415, "unsupported_encoding")),
        (InternalError("x."), (500, "internal_error"), (500, "internal")),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_clients_of_each_kind_are_told_by_the_status_and_the_type_that_they_know(
    error: StructuredServerError, system_one: tuple[int, str], openai: tuple[int, str]
) -> None:
    status, body = answered(error, SYSTEM_ONE)
    assert system_one == (status, body["detail"]["error_type"])
    status, body = answered(error, OPENAI)
    assert openai == (status, body["error"]["code"])


@pytest.mark.parametrize(
    ("error", "location", "status"),
    [
        (InvalidRequest("is odd.", path=("samples",)), ["body", "samples"], 400),
        (InvalidQuestion("is odd.", path=("questions", "a", "criteria", 0)), None, 400),
        (MalformedBody("the body is odd."), ["body"], 400),
    ],
)
def test_a_wrong_field_stands_in_a_list_by_its_place_or_is_a_parameter(
    error: StructuredServerError, location: list[str | int] | None, status: int
) -> None:
    place = ["body", *error.path] if location is None else location
    said = error.predicate if error.path else error.message
    assert (422, {"detail": [{"loc": place, "msg": said, "type": error.code}]}) == answered(error, SYSTEM_ONE)
    got, body = answered(error, OPENAI)
    assert (status, ".".join(map(str, error.path)) or None) == (got, body["error"]["param"])
    assert error.message == body["error"]["message"]


def test_a_hint_is_said_in_the_message_where_there_is_no_field_for_it() -> None:
    error = InvalidRequest("is odd.", path=("samples",), hint="Send 3.")
    assert "is odd. Send 3." == answered(error, SYSTEM_ONE)[1]["detail"][0]["msg"]
    assert "samples is odd. Send 3." == answered(error, OPENAI)[1]["error"]["message"]
    assert "x. Wait." == answered(Overloaded("x.", hint="Wait."), SYSTEM_ONE)[1]["detail"]["message"]
