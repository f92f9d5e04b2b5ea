"""The schema alone tells bad bodies from good ones, and the server agrees with it."""

from __future__ import annotations

from itertools import product
from string import ascii_uppercase
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tests.api.conftest import WORDS, Start
from tests.api.listed import BAD, GOOD, Named
from tests.api.test_openapi import DOCUMENT
from tests.fake_backend import FakeBackend
from tests.toy import ToyTokenizer

PAIRS = tuple("".join(pair) for pair in product(ascii_uppercase, repeat=2))  # labels of a wide choice


def _validator(path: str) -> Any:
    body = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return jsonschema_rs.validator_for({**body, "components": DOCUMENT["components"]})


def _able() -> FakeBackend:
    return FakeBackend(max_model_len=None, max_steps=8, generation=True, chat=True, images=True)


async def _statuses(client: httpx.AsyncClient, path: str, bodies: Named) -> dict[str, int]:
    return {name: (await client.post(path, json=body)).status_code for name, body in bodies.items()}


@pytest.mark.parametrize("path", BAD)
def test_the_schema_alone_refuses_each_bad_body(path: str) -> None:
    validator = _validator(path)
    assert [] == [name for name, body in BAD[path].items() if validator.is_valid(body)]


@pytest.mark.parametrize("path", BAD)
async def test_the_server_refuses_each_bad_body(path: str, start: Start) -> None:
    async with start(_able()) as client:
        statuses = await _statuses(client, path, BAD[path])
    assert {} == {name: status for name, status in statuses.items() if status not in (400, 422)}


@pytest.mark.parametrize("path", GOOD)
def test_the_schema_accepts_each_good_body(path: str) -> None:
    validator = _validator(path)
    assert {} == {
        name: [error.message for error in validator.iter_errors(body)]
        for name, body in GOOD[path].items()
        if not validator.is_valid(body)
    }


@pytest.mark.parametrize("path", GOOD)
async def test_the_server_accepts_each_good_body(path: str, start: Start) -> None:
    async with start(_able(), ToyTokenizer((*WORDS, *PAIRS))) as client:
        statuses = await _statuses(client, path, GOOD[path])
    assert {} == {name: status for name, status in statuses.items() if status != 200}
