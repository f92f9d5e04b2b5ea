"""Images as they come: data URLs, or parts of a multipart body. Never an address to fetch."""

from __future__ import annotations

import base64
import binascii
import re

from structured_server.core.reads import Image
from structured_server.errors import InvalidRequest, Path

MAX_IMAGE_BYTES = 8 * 1024 * 1024

_DATA_URL = re.compile(r"data:(image/[a-z+.-]+);base64,", re.IGNORECASE)
# The media type of an image by its first bytes: what it says of itself is not believed.
_SIGNATURES = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
    ("image/gif", re.compile(rb"GIF8[79]a")),
)


def image_of(given: str, index: int) -> Image:
    """Return the image that one entry of `images` holds.

    Raises:
        InvalidRequest: it is an address or a path, or holds no image.
    """
    return data_url_image(given, ("images", index))


def data_url_image(given: str, path: Path) -> Image:
    """Return the image that a data URL holds.

    Raises:
        InvalidRequest: it is an address or a path, or holds no image.
    """
    match = _DATA_URL.match(given)
    if match is None:
        raise InvalidRequest(
            "must be a data URL of base64 (data:image/png;base64,...).",
            path=path,
            hint="Addresses are not fetched here, and paths are not read: send the image itself.",
        )
    return base64_image(given[match.end() :], path)


def base64_image(text: str, path: Path) -> Image:
    """Return the image that base64 holds.

    Raises:
        InvalidRequest: it is no base64, or no image.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("is not base64.", path=path) from None
    return checked_image(data, path)


def checked_image(data: bytes, path: Path) -> Image:
    """Return the bytes as an image.

    Raises:
        InvalidRequest: they are too many, or no image of a kind that is taken.
    """
    if len(data) > MAX_IMAGE_BYTES:
        raise InvalidRequest(f"has {len(data)} bytes; an image may have {MAX_IMAGE_BYTES}.", path=path)
    for media_type, signature in _SIGNATURES:
        if signature.match(data):
            return Image(media_type, data)
    raise InvalidRequest("is no PNG, JPEG, WebP or GIF.", path=path)
