"""A front end that behaves as Cloud Run's IAM does, and the metadata server that its tokens come from.

A request shows an identity token in `X-Serverless-Authorization`, or, where that header is absent, in
`Authorization`. Without one it is 403, with one that is wrong or has ended 401, both as a page in HTML. What
was looked at does not reach the server behind: `X-Serverless-Authorization` is dropped, and an
`Authorization` that was the token goes on without its signature.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.clients.relay import application, relayed, running

LIFETIME_S = 2  # an hour at the real one; here a test can wait for the end
IDENTITY = "/computeMetadata/v1/instance/service-accounts/default/identity"
SIGNATURE_REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"
OWN_HEADER = "X-Serverless-Authorization"


@dataclass
class Minter:
    """Signs identity tokens for an audience, and knows them again."""

    minted: list[str] = field(default_factory=list)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def mint(self, audience: str, lifetime_s: float = LIFETIME_S) -> str:
        """Return a new token."""
        claims = {"aud": audience, "exp": int(time.time() + lifetime_s)}
        signed = f"{_encoded(b'{}')}.{_encoded(json.dumps(claims).encode())}"
        self.minted.append(f"{signed}.{self._signature(signed)}")
        return self.minted[-1]

    def accepts(self, token: str, audience: str) -> bool:
        """Tell whether a token is one of this minter's, for this audience, and has not ended."""
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(signed), signature):
            return False
        claims = json.loads(base64.urlsafe_b64decode(signed.partition(".")[2] + "=="))
        return bool(claims["aud"] == audience and time.time() < claims["exp"])

    def _signature(self, signed: str) -> str:
        return _encoded(hmac.digest(self._secret, signed.encode(), hashlib.sha256))


@dataclass(frozen=True, slots=True)
class Front:
    """A front end that runs, with where its tokens come from."""

    url: str
    metadata: str
    minter: Minter


@contextmanager
def iam_front(behind: str) -> Iterator[Front]:
    """Serve a front end before a server, and the metadata server beside it."""
    minter = Minter()

    async def admit(request: web.Request) -> web.Response:
        headers = request.headers.copy()
        shown = headers.popall(OWN_HEADER, [None])[0]
        scheme, _, token = (headers.get("Authorization", "") if shown is None else shown).partition(" ")
        if scheme.lower() != "bearer" or not token:
            return _page(403, "Your client does not have permission to get this URL from this server.")
        if not minter.accepts(token, audience=f"http://{request.host}"):
            return _page(401, "Your client does not have permission to the requested URL.")
        if shown is None:
            headers["Authorization"] = f"Bearer {token.rpartition('.')[0]}.{SIGNATURE_REMOVED}"
        return await relayed(request, behind, headers)

    async def identity(request: web.Request) -> web.Response:
        if request.path != IDENTITY or request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        return web.Response(text=minter.mint(request.query["audience"]))

    with running(application(admit)) as url, running(application(identity)) as metadata:
        yield Front(url, metadata, minter)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _page(status: int, text: str) -> web.Response:
    page = f"<html><head><title>{status}</title></head><body><h1>Error</h1><h2>{text}</h2></body></html>"
    return web.Response(status=status, text=page, content_type="text/html")
