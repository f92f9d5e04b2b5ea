"""Google's identity tokens: who comes in with one, and with which certificates they are checked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

from structured_server.errors import IdentityUnchecked, SettingsError, WrongKey
from structured_server.google_identity import (
    FRESH_S,
    PAUSE_S,
    STALE_S,
    CertificatesMissing,
    GoogleIdentities,
    GoogleVerifier,
    KeptCertificates,
    google_identities,
)
from structured_server.keys import Gate
from structured_server.settings import Settings

TOKEN = "head.claims.signature"  # noqa: S105  no secret
CALLER = "alerts@project.iam.gserviceaccount.com"
CLAIMS = {"iss": "https://accounts.google.com", "email": CALLER, "email_verified": True, "sub": "117"}
URL = "https://www.googleapis.com/oauth2/v1/certs"
AUDIENCE = "https://decisions.example"


def identities(*callers: str, **claims: Any) -> GoogleIdentities:
    """Return who knows those callers, by a token whose signature is right and which claims this."""
    return GoogleIdentities(callers or (CALLER,), lambda _: CLAIMS | claims)


# Who comes in


@pytest.mark.parametrize(
    ("callers", "claims"),
    [
        ((CALLER,), {}),
        ((CALLER.upper(),), {}),
        (("other@example.org", CALLER), {}),
        (("@project.iam.gserviceaccount.com",), {}),
        (("*",), {"email": "anybody@example.org"}),
        (("@example.org",), {"email": "Ann@Example.org", "hd": "example.org"}),
        ((CALLER,), {"iss": "accounts.google.com"}),
    ],
)
async def test_a_caller_who_was_named_comes_in_by_the_e_mail_address(
    callers: tuple[str, ...], claims: dict[str, Any]
) -> None:
    assert (CLAIMS | claims)["email"] == await identities(*callers, **claims).name_of(TOKEN)


@pytest.mark.parametrize(
    ("callers", "claims"),
    [
        (("other@example.org",), {}),
        (("@example.org",), {}),
        (("@iam.gserviceaccount.com",), {}),
        # A private account with a company's address is not the company's.
        (("@example.org",), {"email": "ann@example.org"}),
        (("@example.org",), {"email": "ann@example.org", "hd": "other.org"}),
        (("*",), {"iss": "https://accounts.example"}),
        (("*",), {"iss": None}),
        (("*",), {"email": None}),
        (("*",), {"email": 7}),
        (("*",), {"email": "nobody"}),
        (("*",), {"email_verified": False}),
        (("*",), {"email_verified": "true"}),
    ],
)
async def test_nobody_else_does(callers: tuple[str, ...], claims: dict[str, Any]) -> None:
    assert None is await identities(*callers, **claims).name_of(TOKEN)


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c.d", "é.b.c", f"{'a' * 8192}.b.c"])
async def test_what_is_no_identity_token_is_not_even_checked(token: str) -> None:
    asked: list[str] = []

    def verify(token: str) -> dict[str, Any]:
        asked.append(token)
        return CLAIMS

    assert None is await GoogleIdentities(("*",), verify).name_of(token)
    assert [] == asked


@pytest.mark.parametrize("error", [ValueError(TOKEN), TypeError(TOKEN), KeyError("kid"), AttributeError("x")])
async def test_whatever_is_wrong_with_a_token_it_is_a_wrong_key(error: Exception) -> None:
    def verify(_: str) -> dict[str, Any]:
        raise error

    gate = Gate(identities=GoogleIdentities(("*",), verify))
    with pytest.raises(WrongKey) as caught:
        await gate.admit(f"Bearer {TOKEN}")
    assert TOKEN not in caught.value.message


async def test_without_certificates_a_token_is_not_called_wrong() -> None:
    def verify(_: str) -> dict[str, Any]:
        raise CertificatesMissing

    gate = Gate(["plain"], identities=GoogleIdentities(("*",), verify))
    with pytest.raises(IdentityUnchecked):
        await gate.admit(f"Bearer {TOKEN}")
    assert "api-key-1" == (await gate.admit("Bearer plain")).name, "keys need no certificates"


async def test_tokens_are_checked_in_a_thread() -> None:
    threads: list[int] = []

    def verify(_: str) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return CLAIMS

    await GoogleIdentities(("*",), verify).name_of(TOKEN)
    assert threading.get_ident() not in threads


async def test_who_comes_in_has_a_name_for_the_log_and_one_label_for_all() -> None:
    gate = Gate(identities=identities())
    assert not gate.open
    admitted = await gate.admit(f"Bearer {TOKEN}")
    assert (CALLER, "google", "") == (admitted.name, admitted.label, admitted.cache_salt)


# Certificates


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    data: bytes = b"{}"


class Certificates:
    """Google's endpoint, which counts how often it is asked, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.reply: Reply | Exception = Reply()
        self.kept = KeptCertificates(self.fetch, lambda: self.now)

    def fetch(self, url: str, *, method: str, timeout: float) -> Reply:
        assert (URL, "GET") == (url, method)
        assert timeout < 10
        self.asked += 1
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.fixture
def google() -> Certificates:
    """Google's endpoint."""
    return Certificates()


def test_certificates_are_fetched_once_an_hour(google: Certificates) -> None:
    for google.now in (0.0, 1.0, FRESH_S - 1):
        assert google.reply is google.kept(URL, method="GET")
    assert 1 == google.asked
    google.now = FRESH_S
    google.kept(URL)
    assert 2 == google.asked


@pytest.mark.parametrize("failure", [OSError("no route"), Reply(503)])
def test_while_no_newer_ones_can_be_had_the_old_ones_serve_for_a_day(
    google: Certificates, failure: Reply | Exception
) -> None:
    good = google.kept(URL)
    google.reply = failure
    google.now = STALE_S - 1
    assert good is google.kept(URL)
    google.now = STALE_S
    with pytest.raises(CertificatesMissing):
        google.kept(URL)


def test_after_a_failure_google_is_left_alone_for_a_while(google: Certificates) -> None:
    google.reply = OSError("no route")
    for google.now in (0.0, 1.0, PAUSE_S - 1):
        with pytest.raises(CertificatesMissing):
            google.kept(URL)
    assert 1 == google.asked
    google.reply = Reply()
    google.now = PAUSE_S
    assert google.reply is google.kept(URL)


def test_many_who_come_at_once_fetch_once() -> None:
    asked = 0

    def fetch(_url: str, **_: object) -> Reply:
        nonlocal asked
        asked += 1
        time.sleep(0.05)
        return Reply()

    kept = KeptCertificates(fetch)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: kept(URL), range(8)))
    assert (1, 200) == (asked, {reply.status for reply in replies}.pop())


# Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"google_audience": AUDIENCE}, "need each other"),
        ({"google_caller": (CALLER,)}, "need each other"),
        ({"google_audience": AUDIENCE, "google_caller": ("example.org",)}, "an e-mail address, @domain or"),
    ],
)
def test_an_audience_without_callers_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(upstream="http://engine", model="dgemma", **wrong)


@pytest.mark.skipif(
    find_spec("google") is not None and find_spec("google.auth") is not None, reason="it is here"
)
def test_without_google_auth_the_setting_says_what_to_install() -> None:
    with pytest.raises(SettingsError, match=r"pip install 'structured-server\[gcp\]'"):
        google_identities(AUDIENCE, (CALLER,))


# google-auth itself, on keys of our own


def _signed() -> tuple[Callable[..., str], KeptCertificates]:
    """Return what signs claims as Google would, and the certificates to check them with."""
    pytest.importorskip("google.auth", reason="needs the extra gcp")
    pytest.importorskip("cryptography", reason="makes the RSA key")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from google.auth import crypt, jwt

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signer = crypt.RSASigner.from_string(pem, key_id="ours")  # type: ignore[no-untyped-call]
    reply = Reply(data=json.dumps({"ours": public.decode()}).encode())

    def sign(*, key_id: str = "ours", **claims: Any) -> str:
        now = int(time.time())
        whole = CLAIMS | {"aud": AUDIENCE, "iat": now - 10, "exp": now + 600} | claims
        said = {name: value for name, value in whole.items() if value is not None}
        token: bytes = jwt.encode(signer, said, key_id=key_id)  # type: ignore[no-untyped-call]
        return token.decode()

    return sign, KeptCertificates(lambda *_, **__: reply)


async def test_google_auth_takes_what_is_signed_for_the_audience_and_in_time() -> None:
    sign, certificates = _signed()
    known = GoogleIdentities((CALLER,), GoogleVerifier(AUDIENCE, certificates))
    assert CALLER == await known.name_of(sign())


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://other.example"},
        {"aud": None},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"exp": "soon"},
        {"iat": 4_000_000_000, "exp": 4_000_000_600},
        {"iss": "https://accounts.example"},
        {"email": "other@example.org"},
        {"key_id": "theirs"},
    ],
)
async def test_google_auth_refuses_all_else(claims: dict[str, Any]) -> None:
    sign, certificates = _signed()
    known = GoogleIdentities((CALLER,), GoogleVerifier(AUDIENCE, certificates))
    assert None is await known.name_of(sign(**claims))


async def test_google_auth_refuses_a_signature_that_is_not_googles() -> None:
    sign, certificates = _signed()
    other, _ = _signed()
    known = GoogleIdentities((CALLER,), GoogleVerifier(AUDIENCE, certificates))
    head, claims, signature = sign().split(".")
    for token in (
        other(),
        f"{head}.{claims}.",
        f"{head}.{claims}.{signature[::-1]}",
        f"e30.{claims}.{signature}",
    ):
        assert None is await known.name_of(token)
