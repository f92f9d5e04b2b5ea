"""What may be asked about: text, JSON of any shape, and images where the server sees them."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from typesafe_sdk import (
    Box,
    Image,
    Noul,
    Question,
    TypeSafeAPIError,
    TypeSafeClient,
    TypeSafeUnprocessableEntityError,
)

from tests.conformance.asked import STATE, THREE, URGENT, body, png
from tests.conformance.judging import judge_noul
from tests.conformance.target import Target

CLEAN = (400, 413, 415, 422)
SHAPES: dict[str, Any] = {
    "object": {"ticket": {"id": 7, "vip": True, "note": None, "tags": ["billing", "日本"], "amount": 12.5}},
    "turns": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": STATE},
    ],
    "mixed array": ["first", "second", {"third": 3}],
}
RED: dict[str, Question] = {"red": Noul(instructions="Is the picture red?")}
REGION: dict[str, Question] = {"region": Box(instructions="what is red")}


@pytest.mark.parametrize("state", SHAPES.values(), ids=SHAPES)
def test_a_state_may_be_json_of_any_shape(sdk: TypeSafeClient, state: Any) -> None:
    assert set(THREE) == set(sdk.system_one(state, THREE).answers)


def test_a_state_of_120_000_characters_is_answered_or_refused(sdk: TypeSafeClient) -> None:
    try:
        answer = sdk.system_one("lorem ipsum dolor " * 6700, {"urgent": URGENT}).answers["urgent"]
    except TypeSafeAPIError as error:
        assert error.status in (400, 413, 422)  # noqa: PT017 - either is right
    else:
        judge_noul(answer)


@pytest.mark.parametrize("state", ["", {}, []], ids=repr)
def test_an_empty_state_is_answered_or_refused(sdk: TypeSafeClient, state: Any) -> None:
    try:
        answer = sdk.system_one(state, {"urgent": URGENT}).answers["urgent"]
    except TypeSafeAPIError as error:
        assert 400 <= error.status < 500  # noqa: PT017 - either is right
    else:
        judge_noul(answer)


def test_an_image_of_the_sdks_is_read_or_refused_by_name(target: Target, sdk: TypeSafeClient) -> None:
    try:
        answer = sdk.system_one({"photo": Image(png())}, RED).answers["red"]
    except TypeSafeAPIError as error:
        assert error.status in CLEAN  # noqa: PT017 - either is right
        assert "text only" in str(error)  # noqa: PT017 - likewise
    else:
        # An answer of a server that sees nothing would be made up.
        assert not target.text_only
        judge_noul(answer)


def test_an_image_in_base64_is_read_or_refused_by_name(target: Target, http: httpx.Client) -> None:
    asset = {"type": "image", "format": "png", "data_base64": base64.b64encode(png()).decode()}
    reply = http.post("/v1/systemone", json=body(state="look: <img1>", assets={"<img1>": asset}))
    if reply.status_code == 200:
        assert not target.text_only
    else:
        assert reply.status_code in CLEAN
        assert "text only" in reply.text


def test_a_box_is_refused_as_a_question_of_no_known_type(sdk: TypeSafeClient) -> None:
    with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.region"):
        sdk.system_one({"photo": Image(png())}, REGION)


def test_a_box_is_refused_without_an_image_too(sdk: TypeSafeClient) -> None:
    with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.region"):
        sdk.system_one(STATE, REGION)
