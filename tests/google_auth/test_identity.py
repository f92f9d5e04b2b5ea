"""Identity tokens: from each source, renewed in time, and shown to one server only."""

from __future__ import annotations

import asyncio
import importlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from google.auth.compute_engine import _metadata

from structured_server.client import AsyncClient, Client, Decision, Noul, UnexpectedReply
from structured_server.google_auth import AccessTokenAuth, AuthError, IdentityAuth, vertex_route
from structured_server.google_auth.auth import audience_of
from structured_server.google_auth.sources import Token
from tests.clients.relay import application, running
from tests.fake_server import FakeServer, answer, serving
from tests.google_auth.issuer import (
    ACCOUNT,
    IMPERSONATED,
    Elsewhere,
    Front,
    Issuer,
    fronting,
    issuing,
    written,
)

URL = "https://triage.example"
QUESTIONS = {"urgent": Noul(instructions="Wake somebody?")}
NOBODY = """echo 'ERROR: (gcloud.auth) You do not currently have an active account selected.' >&2; exit 1"""


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the developer's own, and no metadata server."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


def on_this_machine(monkeypatch: pytest.MonkeyPatch, issuer: Issuer) -> None:
    """Have the issuer be this machine's metadata server."""
    host = issuer.url.removeprefix("http://")
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
        monkeypatch.setenv(name, host)
    monkeypatch.setenv("NO_GCE_CHECK", "false")
    importlib.reload(_metadata)  # it looks at these variables when it is imported


def gcloud(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a `gcloud` on the path that writes down how it was called."""
    folder.mkdir(exist_ok=True)
    program, calls = folder / "gcloud", folder / "calls"
    program.write_text(f'#!/bin/sh\necho "$*" >> {calls}\n{script}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return calls


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """The server behind the front."""
    with serving(lambda _, body: answer(body)) as server:
        yield server


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer of tokens that last 30 s."""
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def front(issuer: Issuer, server: FakeServer) -> Iterator[Front]:
    """The front before the server."""
    with fronting(issuer, server.url, URL) as front:
        yield front


def decide(front: Front, auth: httpx.Auth) -> None:
    with Client(URL, auth=auth, transport=Elsewhere(triage_example=front.url)) as client:
        assert client.decide("x", QUESTIONS).answers["urgent"].answer


def test_the_metadata_server_gives_tokens(
    front: Front, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, issuer)
    auth = IdentityAuth(URL + "/v1")
    for _ in range(3):
        decide(front, auth)
    assert [ACCOUNT] * 3 == front.emails
    assert 1 == len(issuer.minted), "one token serves while it lasts"


def test_a_service_accounts_file_gives_tokens(
    front: Front, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = written(issuer.account_file(), tmp_path / "account.json")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
    decide(front, IdentityAuth(URL))
    assert [ACCOUNT] == front.emails


@pytest.mark.parametrize("user", [True, False])
def test_gcloud_gives_tokens_and_only_service_accounts_are_asked_for_an_audience(
    user: bool, front: Front, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token, account = issuer.mint(URL), "me@example.com" if user else ACCOUNT
    script = f'case "$*" in *account*) echo {account};; *) echo {token};; esac'
    calls = gcloud(tmp_path / "bin", monkeypatch, script)
    decide(front, IdentityAuth(URL))
    asked = calls.read_text().splitlines()[-1]
    assert ("--audiences" in asked) != user


def test_impersonation_by_gcloud_asks_for_the_account_and_the_audience(
    front: Front, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = gcloud(tmp_path / "bin", monkeypatch, f"echo {issuer.mint(URL, IMPERSONATED)}")
    decide(front, IdentityAuth(URL, impersonate=IMPERSONATED))
    assert [IMPERSONATED] == front.emails
    assert f"--impersonate-service-account={IMPERSONATED} --audiences={URL}" in calls.read_text()


def test_a_servers_own_key_goes_beside_the_token(
    front: Front, server: FakeServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, issuer)
    decide(front, IdentityAuth(URL, key="sk-own"))
    assert "Bearer sk-own" == server.headers[0]["authorization"]
    assert "x-serverless-authorization" not in server.headers[0]
    assert issuer.minted[0] in front.shown[0]["X-Serverless-Authorization"]


@pytest.mark.parametrize(
    ("url", "audience"),
    [
        ("https://triage-abc.a.run.app/v1", "https://triage-abc.a.run.app"),
        ("https://candidate---triage-abc.a.run.app", "https://triage-abc.a.run.app"),
        ("https://me@triage.example:8443/x?y", "https://triage.example:8443"),
        ("https://a---b.example", "https://a---b.example"),
    ],
)
def test_tokens_are_for_the_service_whatever_of_it_is_asked(url: str, audience: str) -> None:
    assert audience == audience_of(httpx.URL(url))


def test_a_token_that_is_refused_is_renewed_once(
    front: Front, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, issuer)
    auth = IdentityAuth(URL)
    front.refuse_next = 1
    decide(front, auth)
    assert 2 == len(issuer.minted)
    front.refuse_next = 9
    with pytest.raises(UnexpectedReply, match="answered 401"):
        decide(front, auth)
    assert (3, 4) == (len(issuer.minted), len(front.shown)), "one more, and then it is told"


def test_no_row_is_lost_while_tokens_end_and_are_renewed(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 requests over at least three lives of a token; those in flight share each new one."""
    with issuing(lifetime_s=2) as issuer, fronting(issuer, server.url, URL) as front:
        on_this_machine(monkeypatch, issuer)

        async def work() -> list[object]:
            transport = Elsewhere(triage_example=front.url)
            async with AsyncClient(URL, auth=IdentityAuth(URL), transport=transport) as client:
                found: list[object] = []
                begun = time.monotonic()
                for part in range(8):
                    found += await client.decide_many([f"row {part} {n}" for n in range(25)], QUESTIONS)
                    await asyncio.sleep(max(0.0, begun + 0.9 * (part + 1) - time.monotonic()))
                return found

        found = asyncio.run(work())
        assert 200 == sum(isinstance(each, Decision) for each in found), found
        assert 200 == len({each["state"] for each in server.asked})
        assert 3 <= len(issuer.minted) <= 12


def recorder(seen: list[dict[str, str]], location: str = "") -> web.Application:
    async def handle(request: web.Request) -> web.Response:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(status=307, headers={"Location": location}) if location else web.Response()

    return application(handle)


def test_tokens_go_to_one_origin_only(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    on_this_machine(monkeypatch, issuer)
    there: list[dict[str, str]] = []
    here: list[dict[str, str]] = []
    with running(recorder(there)) as other, running(recorder(here, "https://other.example/x")) as first:
        transport = Elsewhere(triage_example=first, other_example=other)
        with httpx.Client(auth=IdentityAuth(URL), transport=transport, follow_redirects=True) as client:
            client.get(URL)
            client.get(f"{URL}:8443/x")
            client.get("https://other.example/y")
    assert "authorization" in here[0]
    assert all("authorization" not in each for each in (*there, *here[1:]))


def test_tokens_are_never_shown_to_this_machine_or_in_the_clear(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, issuer)
    seen: list[dict[str, str]] = []
    with running(recorder(seen)) as url:
        for local in (url, url.replace("127.0.0.1", "localhost")):
            with httpx.Client(auth=IdentityAuth(local)) as client:
                client.get(local)
    assert 2 == len(seen)
    assert all("authorization" not in each for each in seen)
    assert [] == issuer.minted
    with pytest.raises(AuthError, match="must begin with https"):
        IdentityAuth("http://triage.example")


def test_who_gives_no_token_is_told_with_the_reason_and_the_next_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(AuthError) as caught:
        httpx.get(URL, auth=IdentityAuth(URL), trust_env=False)
    assert "there is no metadata server here" in str(caught.value)
    assert "gcloud: it is not installed" in str(caught.value)
    assert "gcloud auth login" in str(caught.value)
    gcloud(tmp_path / "bin", monkeypatch, NOBODY)
    with pytest.raises(AuthError, match="active account selected"):
        httpx.get(URL, auth=IdentityAuth(URL))
    with pytest.raises(AuthError, match=r"roles/iam\.serviceAccountOpenIdTokenCreator"):
        httpx.get(URL, auth=IdentityAuth(URL, impersonate=IMPERSONATED))
    gcloud(tmp_path / "bin", monkeypatch, "echo 'not a token'")
    with pytest.raises(AuthError, match="something else than a token"):
        httpx.get(URL, auth=IdentityAuth(URL))


def test_a_file_of_credentials_that_cannot_serve_is_told_and_no_other_account_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gcloud(tmp_path / "bin", monkeypatch, "echo ya29.somebody-else")
    file = tmp_path / "credentials.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    for text, said in (
        ('{"type": "authorized_user"}', "is of the type authorized_user"),
        ("{}", "is no file of credentials"),
        ("[", "is no file of credentials"),
    ):
        file.write_text(text)
        with pytest.raises(AuthError, match=said):
            httpx.get(URL, auth=IdentityAuth(URL))


def test_a_token_that_ends_soon_serves_on_while_no_other_is_to_be_had(
    front: Front, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.lifetime_s = 20.0
    on_this_machine(monkeypatch, issuer)
    auth = IdentityAuth(URL)
    decide(front, auth)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
        monkeypatch.setenv(name, "127.0.0.1:9")
    importlib.reload(_metadata)
    kept = auth._kept._token
    assert kept is not None
    auth._kept._token = Token(
        kept.value, kept.made - 1e9, kept.ends
    )  # so that a tenth of its life is long too
    decide(front, auth)
    assert 1 == len(issuer.minted)


def test_what_others_say_is_told_without_what_may_be_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = "eyJhbGciOiJSUzI1NiJ9." + "a" * 80
    gcloud(tmp_path / "bin", monkeypatch, f"echo 'malformed: {token} ya29.abc' >&2; exit 1")
    with pytest.raises(AuthError) as caught:
        httpx.get(URL, auth=IdentityAuth(URL))
    assert "malformed: ..." in str(caught.value)
    assert token not in str(caught.value)
    assert "ya29" not in str(caught.value)


def test_a_token_is_in_no_message_and_no_representation(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, issuer)
    auth = IdentityAuth(URL)
    token = auth._kept.current()
    kept = auth._kept._token
    assert token not in f"{auth!r} {auth._kept!r} {kept!r} {vars(auth)}"


def test_access_tokens_come_from_the_account_or_gcloud(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[dict[str, str]] = []
    with running(recorder(seen)) as url:
        transport = Elsewhere(vertex_example=url)
        monkeypatch.setenv(
            "GOOGLE_APPLICATION_CREDENTIALS", written(issuer.account_file(), tmp_path / "account.json")
        )
        address = "https://vertex.example"
        with httpx.Client(auth=AccessTokenAuth(address), transport=transport) as client:
            client.get(address)
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
        gcloud(tmp_path / "bin", monkeypatch, "echo ya29.of-gcloud")
        with httpx.Client(auth=AccessTokenAuth(address), transport=transport) as client:
            client.get(address)
    assert ["Bearer ya29.access", "Bearer ya29.of-gcloud"] == [each["authorization"] for each in seen]


ENDPOINT = "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1/endpoints/e"
DEDICATED = (
    "https://e.us-central1-123.prediction.vertexai.goog/v1/projects/p/locations/us-central1/endpoints/e"
)


@pytest.mark.parametrize(
    "url", [ENDPOINT, DEDICATED, f"{ENDPOINT}:rawPredict", f"{DEDICATED}:rawPredict", f"{ENDPOINT}/"]
)
def test_endpoints_of_vertex_are_known_with_and_without_their_verb(url: str) -> None:
    assert vertex_route(url).endswith("/endpoints/e:rawPredict")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.com/v1", "no endpoint of Vertex AI, such as https://us-central1"),
        (f"{ENDPOINT}:predict", "no endpoint"),
        (ENDPOINT.replace("https", "http"), "no endpoint"),
        (ENDPOINT.replace("/us-central1/", "/europe-west4/"), "two regions: us-central1 and europe-west4"),
    ],
)
def test_what_is_no_endpoint_is_told_with_one(url: str, said: str) -> None:
    with pytest.raises(AuthError, match=said):
        vertex_route(url)
