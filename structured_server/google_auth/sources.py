"""Where tokens come from: google-auth, and then the gcloud command."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from structured_server.google_auth.errors import AuthError

ASSUMED_S = 1800.0
"""How long a token is used that does not say when it ends; Google's last an hour."""

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GCLOUD_S = 30.0
EXTRA = "pip install 'structured-server[gcp]'"
SERVICE_ACCOUNT = ".gserviceaccount.com"
CREDENTIALS_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_SECRET = re.compile(r"[A-Za-z0-9_\-+/=.]{60,}|ya29\.[\w.\-]+")
"""What may be a token, or a key, in what others say."""


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token, when it was made, and when it ends: seconds since the epoch."""

    value: str
    made: float
    ends: float


Attempt = Callable[[], Token]


def identity_token(audience: str, impersonate: str | None) -> Token:
    """Return an identity token for an audience.

    Raises:
        AuthError: nobody gives one.
    """
    if impersonate:
        return _first(
            [
                ("google-auth", lambda: _impersonated(audience, impersonate)),
                ("gcloud", lambda: _gcloud_identity(audience, impersonate)),
            ],
            f"gcloud iam service-accounts add-iam-policy-binding {impersonate} --member=user:YOU "
            "--role=roles/iam.serviceAccountOpenIdTokenCreator",
        )
    return _first(
        [
            ("google-auth", lambda: _own_identity(audience)),
            ("gcloud", lambda: _gcloud_identity(audience, None)),
        ],
        "gcloud auth login",
    )


def access_token() -> Token:
    """Return an access token for Google's APIs.

    Raises:
        AuthError: nobody gives one.
    """
    return _first(
        [("google-auth", _own_access), ("gcloud", lambda: _gcloud(["auth", "print-access-token"]))],
        "gcloud auth application-default login",
    )


def _first(attempts: Sequence[tuple[str, Attempt]], next_command: str) -> Token:
    failed = []
    for name, attempt in attempts:
        try:
            return attempt()
        except _WrongFile:
            raise
        except AuthError as error:
            failed.append(f"{name}: {error}")
    raise AuthError(f"there is no token. {' '.join(failed)} Next: {next_command}")


class _WrongFile(AuthError):
    """The file of credentials that is named cannot be used: nobody else's are taken in its place."""


def _own_identity(audience: str) -> Token:
    """Ask the service account's file, or the metadata server: user credentials make no such tokens."""
    with _request() as request:
        from google.auth import compute_engine
        from google.auth.compute_engine import _metadata
        from google.oauth2 import service_account

        credentials: Any
        if file := os.environ.get(CREDENTIALS_FILE):
            credentials = service_account.IDTokenCredentials.from_service_account_info(  # type: ignore[no-untyped-call]
                _account(file), target_audience=audience
            )
        # Once and for a second, where google-auth would ask three times for three seconds.
        elif _metadata.ping(request, timeout=1, retry_count=1):  # type: ignore[no-untyped-call]
            credentials = compute_engine.IDTokenCredentials(  # type: ignore[no-untyped-call]
                request, audience, use_metadata_identity_endpoint=True
            )
        else:
            raise AuthError(f"there is no metadata server here, and {CREDENTIALS_FILE} names no file.")
        credentials.refresh(request)
        return _token(credentials.token)


def _account(file: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(file).read_text("utf-8"))
        kind = found["type"]
    except (OSError, ValueError, LookupError, TypeError):
        raise _WrongFile(f"{file}, which {CREDENTIALS_FILE} names, is no file of credentials.") from None
    if kind != "service_account":
        raise _WrongFile(
            f"{file}, which {CREDENTIALS_FILE} names, is of the type {kind}, which makes no identity tokens. "
            "Next: --impersonate-service-account=ACCOUNT, or a service account's file."
        )
    return dict(found)


def _impersonated(audience: str, account: str) -> Token:
    with _request() as request:
        import google.auth
        from google.auth import impersonated_credentials

        source, _ = google.auth.default(scopes=[SCOPE])
        target = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
            source, account, [SCOPE]
        )
        credentials = impersonated_credentials.IDTokenCredentials(  # type: ignore[no-untyped-call]
            target, audience, include_email=True
        )
        credentials.refresh(request)
        return _token(credentials.token)


def _own_access() -> Token:
    with _request() as request:
        import google.auth

        credentials, _ = google.auth.default(scopes=[SCOPE])
        credentials.refresh(request)  # type: ignore[no-untyped-call]
    made = time.time()
    expiry = credentials.expiry  # in UTC, which it does not say
    ends = made + ASSUMED_S if expiry is None else expiry.replace(tzinfo=UTC).timestamp()
    return Token(str(credentials.token), made, ends)


@contextmanager
def _request() -> Iterator[Any]:
    """Hold what google-auth sends requests with; what it raises becomes our own.

    Raises:
        AuthError: it raised something, or is not installed.
    """
    try:
        import google.auth.transport.requests
        import requests
        from google.auth import exceptions
    except ImportError:
        raise AuthError(f"it is not installed: {EXTRA}.") from None
    try:
        with requests.Session() as session:
            yield google.auth.transport.requests.Request(session)
    # It lets through what answers of another shape than Google's bring about.
    except (exceptions.GoogleAuthError, OSError, ValueError, LookupError, TypeError) as error:
        raise AuthError(_said(error)) from None


def _gcloud_identity(audience: str, impersonate: str | None) -> Token:
    command = ["auth", "print-identity-token"]
    if impersonate:
        command += [
            f"--impersonate-service-account={impersonate}",
            f"--audiences={audience}",
            "--include-email",
        ]
    elif _gcloud_output(["config", "get-value", "account"]).endswith(SERVICE_ACCOUNT):
        command.append(f"--audiences={audience}")
    # A user's token has an audience of gcloud's own, which Cloud Run accepts.
    return _gcloud(command)


def _gcloud(arguments: list[str]) -> Token:
    found = _gcloud_output(arguments)
    if not found or any(char.isspace() for char in found):
        raise AuthError("it printed something else than a token.")
    return _token(found)


def _gcloud_output(arguments: list[str]) -> str:
    program = shutil.which("gcloud")
    if program is None:
        raise AuthError("it is not installed: https://cloud.google.com/sdk/docs/install.")
    environ = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    try:
        done = subprocess.run(  # noqa: S603  the user's own gcloud
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=GCLOUD_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environ,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AuthError(f"it could not be run: {type(error).__name__}.") from None
    if done.returncode:
        raise AuthError(_said(done.stderr))
    return done.stdout.strip()


def _said(error: object) -> str:
    """Return the first line of what was said, as one sentence."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    line = _SECRET.sub("...", lines[0]) if lines else type(error).__name__
    return line[:300].rstrip(".") + "."


def _token(value: Any) -> Token:
    made = time.time()
    return Token(str(value), made, _end_of(str(value)) or made + ASSUMED_S)


def _end_of(token: str) -> float | None:
    """Return when a JSON web token ends, None where it does not say. Its signature is not our business."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return None
