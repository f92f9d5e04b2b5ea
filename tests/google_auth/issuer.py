"""An issuer of identity tokens over HTTP, with what stands around it at Google: keys, metadata server, IAM.

Tokens are signed with RS256 and last as long as a test can wait for. A front end verifies them by the keys
that the issuer publishes, as Cloud Run's does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt

from tests.clients.relay import application, relayed, running

ACCOUNT = "robot@project.iam.gserviceaccount.com"
IMPERSONATED = "caller@project.iam.gserviceaccount.com"
GOOGLES = "https://oauth2.googleapis.com/token"  # which google-auth names wherever it asks
IDENTITY = "/computeMetadata/v1/instance/service-accounts/default/identity"


def _pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _public(key: rsa.RSAPrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(encoding, form).decode()


@dataclass
class Issuer:
    """Mints tokens that last `lifetime_s`, and tells which it minted."""

    lifetime_s: float = 30.0
    url: str = ""
    minted: list[str] = field(default_factory=list)
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    _account_key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def mint(self, audience: str, email: str = ACCOUNT) -> str:
        """Return a new token."""
        now = time.time()
        claims = {"iss": self.url, "aud": audience, "email": email, "iat": int(now), "n": len(self.minted)}
        claims["exp"] = int(now + self.lifetime_s)
        signer = crypt.RSASigner.from_string(_pem(self._key), "k1")  # type: ignore[no-untyped-call]
        self.minted.append(jwt.encode(signer, claims).decode())  # type: ignore[no-untyped-call]
        return self.minted[-1]

    def account_file(self) -> dict[str, Any]:
        """Return a service account's file, whose tokens come from here."""
        return {
            "type": "service_account",
            "project_id": "project",
            "private_key_id": "k2",
            "private_key": _pem(self._account_key),
            "client_email": ACCOUNT,
            "client_id": "1",
            "token_uri": f"{self.url}/token",
        }

    async def answer(self, request: web.Request) -> web.Response:
        """Answer as Google's servers do, each at its path."""
        if request.path == "/certs":
            return web.json_response({"k1": _public(self._key)})
        if request.path == "/token":
            form = await request.post()
            certs, audiences = {"k2": _public(self._account_key)}, [f"{self.url}/token", GOOGLES]
            said = jwt.decode(  # type: ignore[no-untyped-call]
                str(form["assertion"]), certs=certs, audience=audiences
            )
            if "target_audience" in said:
                return web.json_response({"id_token": self.mint(said["target_audience"])})
            return web.json_response(
                {"access_token": "ya29.access", "expires_in": 3600, "token_type": "Bearer"}
            )
        if request.path.endswith(":generateIdToken"):
            asked = await request.json()
            return web.json_response({"token": self.mint(asked["audience"], IMPERSONATED)})
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        told = {"Metadata-Flavor": "Google"}
        if request.query.get("recursive") == "true":
            return web.json_response({"email": ACCOUNT, "scopes": [], "aliases": ["default"]}, headers=told)
        if request.path == IDENTITY:
            return web.Response(text=self.mint(request.query["audience"]), headers=told)
        return web.Response(text="ok", headers=told)


@contextmanager
def issuing(lifetime_s: float = 30.0) -> Iterator[Issuer]:
    """Run an issuer."""
    issuer = Issuer(lifetime_s)
    with running(application(issuer.answer)) as issuer.url:
        yield issuer


@dataclass
class Front:
    """A front end: where it is, for whom tokens must be, and what it was shown."""

    url: str = ""
    shown: list[dict[str, str]] = field(default_factory=list)
    emails: list[str] = field(default_factory=list)
    refuse_next: int = 0


@contextmanager
def fronting(issuer: Issuer, behind: str, audience: str) -> Iterator[Front]:
    """Let requests through to a server with a token of the issuer's for this audience."""
    front = Front()

    async def admit(request: web.Request) -> web.Response:
        front.shown.append(dict(request.headers))
        headers = request.headers.copy()
        shown = headers.popall("X-Serverless-Authorization", [headers.get("Authorization", "")])[0]
        try:
            async with httpx.AsyncClient() as client:
                certs = (await client.get(f"{issuer.url}/certs")).json()
            claims = jwt.decode(shown.removeprefix("Bearer "), certs=certs, audience=audience)  # type: ignore[no-untyped-call]
        except Exception:
            claims = None
        if claims is None or time.time() > claims["exp"] or front.refuse_next:
            front.refuse_next = max(0, front.refuse_next - 1)
            return web.Response(status=401, text="<html>401</html>", content_type="text/html")
        front.emails.append(claims["email"])
        return await relayed(request, behind, headers)

    with running(application(admit)) as front.url:
        yield front


class Elsewhere(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """Sends what is for a made-up host to a server on this machine, and all else where it belongs."""

    def __init__(self, **hosts: str) -> None:
        self._hosts = {name.replace("_", "."): httpx.URL(url) for name, url in hosts.items()}
        self._sync, self._async = httpx.HTTPTransport(), httpx.AsyncHTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        return self._sync.handle_request(self._turned(request))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        return await self._async.handle_async_request(self._turned(request))

    def close(self) -> None:
        """Close its connections."""
        self._sync.close()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._async.aclose()

    def _turned(self, request: httpx.Request) -> httpx.Request:
        to = self._hosts.get(request.url.host)
        if to is not None:
            request.url = request.url.copy_with(scheme=to.scheme, host=to.host, port=to.port)
        return request


def written(account: dict[str, Any], file: Any) -> str:
    """Write a service account's file, and return its path."""
    file.write_text(json.dumps(account))
    return str(file)
