"""From an HTTP response to the JSON of a 200, or to the error that it tells of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from structured_server.client.errors import ClientError, Told, UnexpectedReply, refusal

MAY_PASS = frozenset({408, 429, 502, 503, 504, 529})


def body_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of a successful response.

    Raises:
        ClientError: it is an error, or no JSON object.
    """
    if not response.is_success:
        raise error_of(response)
    try:
        found = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UnexpectedReply(f"{place(response)} answered {response.status_code} without JSON.", 200)
    return found


def error_of(response: httpx.Response) -> ClientError:
    """Return the error that a response tells of, in this server's, System One's or OpenAI's shape."""
    status = response.status_code
    if response.is_redirect:
        # Not followed: what authenticates a request to one host is not for another.
        to = response.headers.get("location", "another address")
        return UnexpectedReply(f"{place(response)} sends on to {to}: use that as the address.", status)
    try:
        told = _told(response.json(), response)
    except (ValueError, KeyError, TypeError, AttributeError):
        return UnexpectedReply(
            f"{place(response)} answered {status}, not as a structured-server does.",
            status,
            retry_after_s(response),
        )
    return refusal(told)


def place(response: httpx.Response) -> str:
    """Return where a response came from, without what its address may hold beside that."""
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"


def _told(body: Mapping[str, Any], response: httpx.Response) -> Told:
    status, headers = response.status_code, response.headers
    request_id = headers.get("x-request-id") or headers.get("x-typesafe-request-id")
    wait_s = retry_after_s(response)
    if "detail" in body:  # System One's
        detail = body["detail"]
        code = detail["error_type"] if isinstance(detail, dict) else "invalid_request_error"
        told = Told(status, code, _message(detail), None, (), status in MAY_PASS, request_id, wait_s)
    else:
        error = body["error"]
        code, message = str(error.get("code") or error.get("type") or status), str(error["message"])
        retryable = bool(error.get("retryable", status in MAY_PASS))
        path = tuple(error.get("path") or ())
        hint = error.get("hint")
        told = Told(
            status, code, message, hint, path, retryable, error.get("request_id") or request_id, wait_s
        )
    return told


def _message(detail: Any) -> str:
    if isinstance(detail, str):
        return detail
    if isinstance(detail, dict):
        return str(detail["message"])
    return " ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}." for each in detail)


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds after which to come back: `Retry-After` has them, or a date. None without it."""
    said = response.headers.get("retry-after", "").strip()
    if not said:
        return None
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def ready_of(response: httpx.Response) -> dict[str, Any]:
    """Return what /ready says: 200 and 503 both say it."""
    try:
        said = response.json()
    except ValueError:
        said = None
    return said if isinstance(said, dict) and "ready" in said else body_of(response)


def names_of(body: Mapping[str, Any]) -> list[str]:
    """Return the names in a list of models, in OpenAI's shape or in System One's.

    Raises:
        UnexpectedReply: it is no such list.
    """
    listed = body.get("data") or body.get("models") or []
    try:
        return [str(each.get("id") or each["name"]) for each in listed]
    except (TypeError, AttributeError, KeyError):
        raise UnexpectedReply("what came is no list of models.", 200) from None
