"""The front end for tests behaves as Cloud Run's IAM does, and the server behind it is served well."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from aiohttp import web

from tests.clients.front import OWN_HEADER, SIGNATURE_REMOVED, Front, iam_front
from tests.clients.relay import application, running
from tests.clients.ticket import QUESTIONS, STATE


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that says which headers and body reached it."""

    async def say(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return web.json_response({"headers": headers, "body": await request.text(), "path": request.path_qs})

    with running(application(say)) as url:
        yield url


@pytest.fixture
def front(echo: str) -> Iterator[Front]:
    """A front end before the echo."""
    with iam_front(echo) as front:
        yield front


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic YTpi"}, {OWN_HEADER: ""}])
def test_without_a_token_it_is_403_in_html(headers: dict[str, str], front: Front) -> None:
    reply = httpx2.get(front.url, headers=headers)
    assert (403, "text/html") == (reply.status_code, reply.headers["content-type"].partition(";")[0])


def test_a_token_that_has_ended_or_is_for_another_or_not_signed_is_401_in_html(front: Front) -> None:
    ended = front.minter.mint(front.url, lifetime_s=-1)
    for_another = front.minter.mint("https://other.example")
    forged = front.minter.mint(front.url)[:-1] + "*"
    for token in (ended, for_another, forged, "sk-some-key"):
        for header in (OWN_HEADER, "Authorization"):
            reply = httpx2.get(front.url, headers={header: f"Bearer {token}"})
            assert 401 == reply.status_code
            assert reply.text.startswith("<html>")


def test_its_own_header_is_looked_at_first_and_does_not_get_through(front: Front) -> None:
    token = front.minter.mint(front.url)
    key = {"Authorization": "Bearer sk-app"}
    reply = httpx2.post(f"{front.url}/a?b=c", headers={OWN_HEADER: f"Bearer {token}", **key}, content="d")
    said = reply.json()
    assert ("/a?b=c", "d", "Bearer sk-app") == (said["path"], said["body"], said["headers"]["authorization"])
    assert OWN_HEADER.lower() not in said["headers"]
    swapped = httpx2.get(
        front.url, headers={OWN_HEADER: key["Authorization"], "Authorization": f"Bearer {token}"}
    )
    assert 401 == swapped.status_code


def test_a_token_in_authorization_gets_through_without_its_signature(front: Front) -> None:
    token = front.minter.mint(front.url)
    said = httpx2.get(front.url, headers={"Authorization": f"Bearer {token}"}).json()
    assert f"Bearer {token.rpartition('.')[0]}.{SIGNATURE_REMOVED}" == said["headers"]["authorization"]


def test_the_metadata_server_wants_its_header(front: Front) -> None:
    url = f"{front.metadata}/computeMetadata/v1/instance/service-accounts/default/identity?audience=a"
    assert 403 == httpx2.get(url).status_code
    token = httpx2.get(url, headers={"Metadata-Flavor": "Google"}).text
    assert front.minter.accepts(token, "a")


def test_a_server_without_keys_ignores_the_token_that_reaches_it(server: str) -> None:
    with iam_front(server) as front:
        token = front.minter.mint(front.url)
        reply = httpx2.post(
            f"{front.url}/v1/systemone",
            json={"model": "jev-latest", "state": STATE, "questions": QUESTIONS},
            headers={"Authorization": f"Bearer {token}"},
        )
    assert (200, list(QUESTIONS)) == (reply.status_code, list(reply.json()["answers"]))


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/systemone", 401), ("/v1/decisions", 401), ("/decide", 403)]
)
def test_to_a_server_with_keys_that_token_is_a_wrong_one(path: str, status: int, keyed_server: str) -> None:
    with iam_front(keyed_server) as front:
        token = front.minter.mint(front.url)
        reply = httpx2.post(front.url + path, json={}, headers={"Authorization": f"Bearer {token}"})
    assert (status, "application/json") == (reply.status_code, reply.headers["content-type"])
