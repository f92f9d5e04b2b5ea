"""The environment that a server is started in: unknown variables, and places that are not for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from ipaddress import ip_address

from structured_server.errors import SettingsError
from structured_server.settings import PREFIX, Settings, variable

CLIENT_VARIABLES = frozenset({f"{PREFIX}URL", f"{PREFIX}TOKEN", f"{PREFIX}TIMEOUT"})

PLATFORMS = {"K_SERVICE": "in Cloud Run", "KUBERNETES_SERVICE_HOST": "in Kubernetes"}
"""Variables that platforms set in every container."""

_SERVICE_LINK = re.compile(rf"{PREFIX}(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")


def service_links(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that Kubernetes itself sets for a Service of this program's name.

    STRUCTURED_SERVER_PORT is one of them where it holds an address, and ours where it holds a number.
    """
    return [
        name
        for name, value in environ.items()
        if _SERVICE_LINK.fullmatch(name) and (name != variable("port") or "://" in value)
    ]


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Refuse environment variables with our prefix that no setting reads: most are misspelt.

    Raises:
        SettingsError: naming the variable and the nearest known one.
    """
    known = {variable(each.name) for each in fields(Settings)} | CLIENT_VARIABLES
    for name in environ:
        if name.startswith(PREFIX) and name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            raise SettingsError(
                f"the environment variable {name} is no setting."
                + (f" Did you mean {near[0]}?" if near else "")
            )


def refuse_demo_model(settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse to serve the embedded model where somebody may rely on it, unless that was asked for.

    Raises:
        SettingsError: saying where, and what to add.
    """
    if settings.backend != "embedded" or settings.allow_demo_model:
        return
    places = [place for name, place in PLATFORMS.items() if environ.get(name)]
    if not _is_loopback(settings.host):
        places.append(f"on {settings.host}")
    if places:
        raise SettingsError(
            f"the embedded model is a demonstration, and this would serve it {' and '.join(places)}: "
            "add --allow-demo-model if that is meant, or --upstream URL for a real one."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
