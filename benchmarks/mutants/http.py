"""Changes to the HTTP around a body, and the request as bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.mutants.draft import Change, Draft


def _odd_header(dice: random.Random, draft: Draft) -> None:
    draft.headers.append(
        dice.choice(
            (
                ("X-Request-Id", "a" * 300),
                ("X-Request-Id", "\xe9 \x7f"),
                ("Authorization", ""),
                ("Authorization", "Bearer"),
                ("Authorization", "Basic \xff"),
                ("Accept", "text/html"),
                ("X-TypeSafe-Retry-Count", "-1"),
                ("Cookie", "a=b; " * 300),
                ("Content-Type", "text/plain"),
                ("Expect", "100-continue"),
                ("Connection", "close"),
                ("Host", "other"),
                ("X-Forwarded-For", "\xff"),
                ("Content-Encoding", "gzip"),
                ("Upgrade", "websocket"),
                ("Range", "bytes=0-1"),
                ("X-Long", "a" * 30_000),
                ("Accept-Encoding", "\x01"),
            )
        )
    )


def _wrong_http(dice: random.Random, draft: Draft) -> None:
    draft.headers.append(
        dice.choice(
            (
                ("Bad Name", "a"),
                ("X-A", "a\x00b"),
                ("Content-Length", "-5"),
                ("Content-Length", "5, 6"),
                ("Transfer-Encoding", "gibberish"),
                ("", "a"),
                ("X-Long", "a" * 200_000),
            )
        )
    )
    draft.damaged = True


def _other_path(dice: random.Random, draft: Draft) -> None:
    path = draft.path
    draft.path = dice.choice(
        (
            f"{path}/",
            f"/{path}",
            f"{path}?{'a' * 900}",
            f"{path}?q=%ff",
            path.upper(),
            f"{path}%00",
            f"{path}/../decide",
            f"{path}%2e",
            "/v1/%F0%9D%94%84",
        )
    )


def _other_method(dice: random.Random, draft: Draft) -> None:
    draft.method = dice.choice(("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "QUERY"))
    draft.damaged = True  # a parser may not know it, and what follows a refusal may be left unread


def _chunked(_dice: random.Random, draft: Draft) -> None:
    draft.framing = "chunked"


def _wrong_chunks(_dice: random.Random, draft: Draft) -> None:
    draft.framing = "wrong chunks"
    draft.damaged = True


def _short_length(_dice: random.Random, draft: Draft) -> None:
    """Announce less than comes: what is left over is no request."""
    draft.framing = "short"
    draft.damaged = True


def wire(dice: random.Random, draft: Draft) -> bytes:
    """Return the request as it goes over the wire."""
    head = [f"{draft.method} {draft.path} HTTP/1.1", *(f"{name}: {value}" for name, value in draft.headers)]
    if not any(name == "Host" for name, _ in draft.headers):
        head.append("Host: localhost")
    body = draft.text
    if "chunk" in draft.framing:
        head.append("Transfer-Encoding: chunked")
        body = _chunks(dice, body, wrong=draft.framing == "wrong chunks")
    else:
        head.append(f"Content-Length: {len(body) // 2 if draft.framing == 'short' else len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + body


def _chunks(dice: random.Random, body: bytes, *, wrong: bool) -> bytes:
    chunks, at = [], 0
    while at < len(body):
        size = dice.choice((1, 7, 100, 5000, 100_000))
        piece = body[at : at + size]
        chunks.append(f"{len(piece):x}{dice.choice(('', ';a=b'))}\r\n".encode() + piece + b"\r\n")
        at += size
    if wrong:
        chunks.insert(
            dice.randrange(len(chunks) + 1),
            dice.choice((b"zz\r\n", b"-1\r\n\r\n", b"fffffffffffffffffffff\r\n", b"\r\n\r\n")),
        )
    return b"".join(chunks) + dice.choice((b"0\r\n\r\n", b"0\r\nX-Trailer: a\r\n\r\n"))


HTTP: Sequence[Change] = (
    _odd_header,
    _odd_header,
    _wrong_http,
    _other_path,
    _other_method,
    _chunked,
    _chunked,
    _wrong_chunks,
    _short_length,
)
