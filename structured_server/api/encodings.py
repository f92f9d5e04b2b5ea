"""Bodies that come compressed: gzip and zstd, decompressed as they arrive and never beyond a limit."""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

from structured_server.errors import BodyTooLarge, MalformedBody, UnsupportedEncoding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WINDOW_LOG = 23  # 8 MiB: what every decoder must be able to hold, and the most that one here will
GZIP = 16 + zlib.MAX_WBITS


class Decoder(Protocol):
    """Takes a body piece by piece. Its output never passes the limit."""

    def feed(self, piece: bytes) -> bytes:
        """Return what a piece decodes to.

        Raises:
            MalformedBody: it is not what the encoding promises.
            BodyTooLarge: it decodes to more than the limit.
        """

    def end(self) -> None:
        """Check that the body is whole.

        Raises:
            MalformedBody: it ends too early.
        """


def decoder(encoding: str, limit: int) -> Decoder:
    """Return a decoder for a `Content-Encoding`.

    Raises:
        UnsupportedEncoding: it is none that is read here.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain(limit)
        case "gzip" | "x-gzip":
            return _Compressed("gzip", limit)
        case "zstd":
            return _Compressed("zstd", limit)
    raise UnsupportedEncoding(
        "the body's Content-Encoding is not read here.", hint="Send it as gzip or zstd, or uncompressed."
    )


class _Plain:
    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    def feed(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise too_large(self._limit)
        return piece

    def end(self) -> None:
        pass


class _Compressed:
    """Both may be several frames, one after the other."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._encoding = encoding
        self._limit = self._left = limit
        self._frame = self._new_frame()
        self._begun = False

    def feed(self, piece: bytes) -> bytes:
        decoded = bytearray()
        while piece or self._holds_back():
            if self._frame.eof:
                self._frame = self._new_frame()
            self._begun = True
            try:
                part, piece = self._step(piece)
            except (zlib.error, zstd.ZstdError):
                raise MalformedBody(f"the body is not {self._encoding}, although it says so.") from None
            self._left -= len(part)
            if self._left < 0:
                raise too_large(self._limit)
            decoded += part
        return bytes(decoded)

    def end(self) -> None:
        if self._begun and not self._frame.eof:
            raise MalformedBody(f"the body's {self._encoding} breaks off.")

    def _step(self, piece: bytes) -> tuple[bytes, bytes]:
        """Decode into at most one byte more than is left; return that, and what of the piece is left over."""
        frame, most = self._frame, self._left + 1
        part = frame.decompress(piece, most)
        if isinstance(frame, zstd.ZstdDecompressor):
            return part, frame.unused_data if frame.eof else b""
        return part, frame.unused_data or frame.unconsumed_tail

    def _holds_back(self) -> bool:
        """Tell whether zstd has more to give without being given more."""
        frame = self._frame
        return (
            isinstance(frame, zstd.ZstdDecompressor) and self._begun and not (frame.eof or frame.needs_input)
        )

    def _new_frame(self) -> zlib._Decompress | zstd.ZstdDecompressor:
        if self._encoding == "gzip":
            return zlib.decompressobj(GZIP)
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})


def too_large(limit: int) -> BodyTooLarge:
    """Return the error for a body of more than `limit` bytes."""
    return BodyTooLarge(
        f"the body has more than {limit} bytes.", hint="Shorten it, or raise the server's --max-body-bytes."
    )
