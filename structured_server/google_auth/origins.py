"""Where tokens may go."""

from __future__ import annotations

import ipaddress

import httpx


def origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return what two addresses must have in common to be one server's."""
    return url.scheme, url.host, url.port


def is_loopback(url: httpx.URL) -> bool:
    """Tell whether an address is this machine's own."""
    host = url.host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
