"""The canary of a server: what its settings name, asked as a caller would ask it."""

from __future__ import annotations

from structured_server.api.query import query_of
from structured_server.api.service import Service
from structured_server.canary import Canary
from structured_server.canary_file import load_known
from structured_server.errors import CallerError, SettingsError


def canary_of(service: Service) -> Canary | None:
    """Return the server's canary, None where it has none.

    Raises:
        SettingsError: the file cannot be used.
    """
    settings = service.settings
    if not settings.canary_s:
        return None
    known = load_known(settings.canary)
    try:
        query = query_of(known.asked, service, known.asked.state_text(), known.asked.pictures(()))
    except CallerError as error:
        raise SettingsError(f"--canary {settings.canary}: {error.message}") from None
    return Canary(
        query,
        known.expected,
        every_s=settings.canary_s,
        driver=service.driver,
        admission=service.admission,
        readiness=service.readiness,
        metrics=service.metrics,
    )
