"""Who is let in."""

from __future__ import annotations

import pytest
from typesafe_sdk import TypeSafeAuthenticationError

from tests.conformance.asked import GREETING, body
from tests.conformance.judging import judge_noul
from tests.conformance.target import Target

WRONG = "sk-wrong"


def test_a_server_without_keys_takes_any(open_target: Target) -> None:
    with open_target.sdk(api_key="some-other-key") as sdk:
        judge_noul(sdk.system_one("hi", GREETING).answers["greeting"])


def test_a_server_without_keys_asks_for_none(open_target: Target) -> None:
    with open_target.http() as http:
        del http.headers["authorization"]
        assert 200 == http.post("/v1/systemone", json=body()).status_code


def test_the_right_key_is_let_in(keyed_target: Target) -> None:
    with keyed_target.sdk() as sdk:
        judge_noul(sdk.system_one("hi", GREETING).answers["greeting"])


def test_a_wrong_key_may_not_ask(keyed_target: Target) -> None:
    with keyed_target.sdk(api_key=WRONG) as sdk, pytest.raises(TypeSafeAuthenticationError) as refused:
        sdk.system_one("hi", GREETING)
    assert {"error_type", "message"} == set(refused.value.body["detail"])


def test_a_wrong_key_may_not_list_models(keyed_target: Target) -> None:
    with keyed_target.sdk(api_key=WRONG) as sdk, pytest.raises(TypeSafeAuthenticationError):
        sdk.models.list()


def test_a_missing_key_is_refused(keyed_target: Target) -> None:
    with keyed_target.http() as http:
        del http.headers["authorization"]
        reply = http.post("/v1/systemone", json=body())
    assert reply.status_code in (401, 403)
    assert reply.json()["detail"]


def test_a_wrong_key_learns_nothing_about_its_body(keyed_target: Target) -> None:
    with keyed_target.http(authorization=f"Bearer {WRONG}") as http:
        assert 401 == http.post("/v1/systemone", content=b"{nope").status_code
