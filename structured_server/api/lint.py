"""`POST /decide/lint`: what a question set comes to. It reads nothing, so it needs no ready engine."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from structured_server.api.bodies import read_body
from structured_server.api.errors import json_response
from structured_server.api.query import query_of
from structured_server.api.service import Service
from structured_server.driver import Compiled, Query
from structured_server.linting import facts_of
from structured_server.parallel import in_a_thread
from structured_server.wire.decide_request import Asking
from structured_server.wire.lint import Linted, LintRequest, render, within_against
from structured_server.wire.validation import caller_error


async def lint(request: Request, service: Service) -> Response:
    """Report on one question set, with what the backend can do as far as it is known.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`; what a decision would refuse is refused.
    """
    body = await read_body(request, service.settings.max_body_bytes)
    asked = _parse(body)
    state = asked.state_text()
    query, compiled = await _compiled(asked, service)
    against = None
    if asked.against is not None:
        with within_against():
            against = await _compiled(asked.against, service)

    def report() -> Response:
        new = _linted(query, compiled, service, state, asked.longest_state_tokens)
        old = None if against is None else _linted(*against, service)
        ready = service.readiness.now.ready
        return json_response(render(new, old, compiled.frame.tokenizer, model=service.model, ready=ready))

    return await in_a_thread(report)


def _parse(body: bytes) -> LintRequest:
    try:
        return LintRequest.model_validate_json(body)
    except ValidationError as error:
        raise caller_error(error, LintRequest) from None


async def _compiled(asked: Asking, service: Service) -> tuple[Query, Compiled]:
    query = query_of(asked, service, "")
    return query, await service.driver.compiled(query)


def _linted(
    query: Query,
    compiled: Compiled,
    service: Service,
    state: str | None = None,
    longest_state_tokens: int | None = None,
) -> Linted:
    facts = facts_of(
        compiled.frame,
        query.policy,
        seed=query.seed,
        long_state=query.long_state,
        state=state,
        longest_state_tokens=longest_state_tokens,
    )
    return Linted(facts, compiled.question_set, service.driver.fingerprint_of(compiled, query.policy))
