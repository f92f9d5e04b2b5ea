"""Everything around decisions: probes, metrics, keys, unknown paths, OpenAPI, the error table."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from structured_server import errors
from structured_server.api.app import create_app
from structured_server.api.errors import DECIDE, OPENAI, STATUS, SYSTEM_ONE, error_response
from structured_server.api.service import assemble
from structured_server.errors import Loading, Overloaded, StructuredServerError
from structured_server.settings import Settings
from tests.api.conftest import Start
from tests.golden.record import Recorder
from tests.golden.requests import TRIAGE
from tests.toy import ToyTokenizer

ASKED = {"state": "502 spike", "questions": TRIAGE}
SNAPSHOT = Path(__file__).parent / "openapi.json"


def leaves(kind: type[StructuredServerError] = StructuredServerError) -> list[type[StructuredServerError]]:
    """Return every error class."""
    return [kind, *(leaf for each in kind.__subclasses__() for leaf in leaves(each))]


@pytest.mark.parametrize(
    "kind", [each for each in leaves() if each.__module__ == errors.__name__ and not each.__subclasses__()]
)
def test_every_error_has_a_status_and_a_code(kind: type[StructuredServerError]) -> None:
    error = kind("what was wrong.")
    for dialect in (DECIDE, SYSTEM_ONE, OPENAI):
        assert 400 <= dialect.status_of(error) < 600
    body = json.loads(bytes(error_response(error, "req_1").body))
    assert {"code", "message", "path", "hint", "retryable", "request_id"} == body["error"].keys()


def test_every_class_in_the_table_exists_in_the_tree() -> None:
    assert set(STATUS) <= set(leaves())


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__ is not None
    for kind in leaves():
        if kind.__module__ == errors.__name__:
            assert kind.__name__ in errors.__doc__


def test_errors_that_may_pass_say_when_to_come_back() -> None:
    assert "30" == error_response(Loading("loading.", retry_after_s=30), "req").headers["retry-after"]
    assert "1" == error_response(Overloaded("later."), "req").headers["retry-after"]
    assert "1" == error_response(errors.UpstreamFailed("failed."), "req").headers["retry-after"]
    assert "retry-after" not in error_response(errors.UpstreamRejected("refused."), "req").headers


async def test_probes_answer(client: httpx.AsyncClient) -> None:
    for path in ("/live", "/health"):
        assert {"live": True} == (await client.get(path)).json()
    ready = (await client.get("/ready")).json()
    assert (True, "ready", None) == (ready["ready"], ready["step"], ready["problem"])


async def test_metrics_count_what_happened(client: httpx.AsyncClient) -> None:
    await client.post("/decide", json=ASKED)
    await client.post("/decide", content=b"{")
    metrics = (await client.get("/metrics")).text
    for line in (
        'structured_server_requests_total{route="/decide",status="200"} 1.0',
        'structured_server_requests_total{route="/decide",status="400"} 1.0',
        'structured_server_reads_total{kind="first"} 1.0',
        'structured_server_reads_total{kind="extra"} 3.0',
        'structured_server_decisions_total{extended="true"} 1.0',
        'structured_server_answers_total{status="decided",type="noul"} 1.0',
        'structured_server_permits{unit="positions"} 1024.0',
        'structured_server_permits_in_use{unit="positions"} 0.0',
        "structured_server_waiting_batches 0.0",
        "structured_server_ready 1.0",
    ):
        assert line in metrics


async def test_unknown_paths_and_methods_get_our_shape(client: httpx.AsyncClient) -> None:
    missing = await client.get("/nowhere")
    assert (404, "not_found") == (missing.status_code, missing.json()["error"]["code"])
    wrong = await client.get("/decide")
    assert (405, "method_not_allowed", "POST") == (
        wrong.status_code,
        wrong.json()["error"]["code"],
        wrong.headers["allow"],
    )


async def test_keys_open_decisions_and_probes_stay_open(start: Start) -> None:
    async with start(api_key=("first", "second")) as client:
        missing = await client.post("/decide", json=ASKED)
        assert (401, "missing_key", "Bearer") == (
            missing.status_code,
            missing.json()["error"]["code"],
            missing.headers["www-authenticate"],
        )
        for wrong in ("Bearer third", "Bearer fir"):
            refused = await client.post("/decide", json=ASKED, headers={"Authorization": wrong})
            assert (403, "wrong_key") == (refused.status_code, refused.json()["error"]["code"])
        for right in ("Bearer first", "bearer second"):
            assert (
                200
                == (await client.post("/decide", json=ASKED, headers={"Authorization": right})).status_code
            )
        for path in ("/live", "/health", "/ready", "/metrics"):
            assert 200 == (await client.get(path)).status_code


async def test_authorization_is_ignored_without_keys(client: httpx.AsyncClient) -> None:
    assert (
        200 == (await client.post("/decide", json=ASKED, headers={"Authorization": "Bearer x"})).status_code
    )


def test_the_openapi_document_is_the_reviewed_one() -> None:
    settings = Settings(upstream="http://engine", model="dgemma")
    document = create_app(assemble(settings, ToyTokenizer(), Recorder())).openapi()
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if not SNAPSHOT.exists():
        SNAPSHOT.write_text(text)
        pytest.fail("wrote the snapshot of the OpenAPI document: review it, commit it, and run again")
    assert SNAPSHOT.read_text() == text, "the OpenAPI document moved: delete the snapshot to write it anew"
