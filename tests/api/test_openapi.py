"""The OpenAPI document says what the server does: generated requests find no difference between them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.checks import load_all_checks, negative_data_rejection
from schemathesis.config import (
    GenerationConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.specs.openapi.checks import positive_data_acceptance

from structured_server.api.app import create_app
from structured_server.api.openapi import OPERATIONS
from structured_server.api.service import assemble
from structured_server.settings import Settings
from structured_server.wire.batch import LINE_TYPES
from tests.api.conftest import WORDS
from tests.fake_backend import FakeBackend
from tests.toy import ToyTokenizer

EXAMPLES = 5  # of each kind for an operation; some hundred more follow from the schema's bounds

APP = create_app(
    assemble(
        Settings(upstream="http://engine", model="dgemma", log_level="error"),
        ToyTokenizer(WORDS, scaffold=True),
        FakeBackend(
            max_model_len=None, max_steps=8, constrained=True, generation=True, chat=True, images=True
        ),
    )
)
DOCUMENT = APP.openapi()
ALIASES = tuple(path for each in OPERATIONS.values() for path in each.documented[1:])
GENERATION = GenerationConfig(max_examples=EXAMPLES, deterministic=True, no_shrink=True)
SCHEMA = schemathesis.openapi.from_dict(
    DOCUMENT,
    config=SchemathesisConfig(
        projects=ProjectsConfig(default=ProjectConfig(generation=GENERATION, request_timeout=120))
    ),
)
SCHEMA.app = APP

# Fields that refer to others of the same request, or hold what no pattern describes: images, names under
# which a question may not be known, times within which nobody can answer.
BEYOND_SCHEMAS = frozenset(
    {"aliases", "ask", "ask_if", "assets", "deadline_ms", "depends_on", "images", "keys", "max_reads"}
)

# The refusals of options or levels that differ in nothing but white space around them, and of a statement
# whose parts are all blank.
BEYOND_PATTERNS = (b" twice ", b"instructions must say something")

load_all_checks()


@schemathesis.serializer(*sorted(LINE_TYPES))
def lines(_context: Any, value: Any) -> bytes:
    """Send lines as the text that they are."""
    return str(value).encode()


def without_what_is_beyond(value: Any) -> Any:
    """Return a valid body without what makes it invalid by more than a schema can say."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in BEYOND_SCHEMAS}
        return {
            key: "dgemma" if key == "model" else without_what_is_beyond(each) for key, each in kept.items()
        }
    if isinstance(value, list):
        return [
            without_what_is_beyond(each)
            for each in value
            if not (isinstance(each, dict) and each.get("type") == "input_image")
        ]
    return value


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Counter[tuple[bool, int]]]]:
    """Count the responses to valid (true) and invalid requests, and see that there were enough of both."""
    counted: dict[str, Counter[tuple[bool, int]]] = defaultdict(Counter)
    yield counted
    for path in ("/decide", "/decide/batch", "/decide/lint", "/v1/systemone", "/v1/decisions"):
        ours = counted[f"POST {path}"]
        accepted = ours[True, 200]
        refused = sum(n for (valid, status), n in ours.items() if not valid and status in (400, 422))
        assert accepted > 20, f"too few valid requests for {path}: {dict(ours)}"
        assert refused > 50, f"too few invalid requests for {path}: {dict(ours)}"


@SCHEMA.exclude(path=list(ALIASES)).parametrize()
def test_no_generated_request_tells_document_and_server_apart(
    case: Any, seen: dict[str, Counter[tuple[bool, int]]]
) -> None:
    valid = case.meta.generation.mode.is_positive
    beyond = []
    if valid:
        case.body = without_what_is_beyond(case.body)
    if case.media_type in LINE_TYPES:  # a schema can only say that they are text
        beyond.append(positive_data_acceptance)
    if case.media_type == "multipart/form-data":  # its other parts are images, and invalid ones may be
        beyond.append(negative_data_rejection)
    response = case.call()
    if any(each in response.content for each in BEYOND_PATTERNS):
        beyond.append(positive_data_acceptance)
    seen[case.operation.label][valid, response.status_code] += 1
    case.validate_response(response, excluded_checks=beyond)


def test_other_spellings_of_a_path_are_documented_alike() -> None:
    for operation in OPERATIONS.values():
        first, *others = (json.dumps(_without_id(path)) for path in operation.documented)
        assert [first] * len(others) == others


def _without_id(path: str) -> dict[str, Any]:
    return {key: each for key, each in DOCUMENT["paths"][path]["post"].items() if key != "operationId"}
