"""Changes to how a body comes: its type, its encoding, parts, lines."""

from __future__ import annotations

import gzip
import json
import random
import sys
import zlib
from collections.abc import Sequence

from benchmarks.mutants.draft import Change, Draft
from benchmarks.mutants.texts import TEXTS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30


def _other_type(dice: random.Random, draft: Draft) -> None:
    draft.set_header(
        "Content-Type",
        dice.choice(
            (
                "text/plain",
                "",
                "application/x-ndjson",
                "application/jsonl",
                "application/json; charset=utf-16",
                "multipart/form-data",
                "MULTIPART/FORM-DATA; boundary=",
                "multipart/form-data; boundary=x",
                "application/x-www-form-urlencoded",
                "\xe9",
                "multipart/form-data; boundary=" + "b" * 300,
            )
        ),
    )


def _no_type(_dice: random.Random, draft: Draft) -> None:
    draft.headers = []


def _compressed(dice: random.Random, draft: Draft) -> None:
    name, done = dice.choice(
        (
            ("gzip", gzip.compress(draft.text, 1, mtime=0)),
            ("zstd", zstd.compress(draft.text)),
            ("GZip ", gzip.compress(draft.text, 1, mtime=0)),
        )
    )
    draft.set_header("Content-Encoding", name)
    draft.text = done


def _compressed_garbage(dice: random.Random, draft: Draft) -> None:
    _compressed(dice, draft)
    dice.choice(TEXTS)(dice, draft)


def _falsely_compressed(dice: random.Random, draft: Draft) -> None:
    draft.set_header(
        "Content-Encoding",
        dice.choice(("gzip", "zstd", "br", "deflate", "gzip, zstd", "x-gzip", "\xe9", "identity")),
    )
    if dice.random() < 0.3:
        draft.text = zlib.compress(draft.text)


def _bomb(dice: random.Random, draft: Draft) -> None:
    name, pack = dice.choice(
        (("gzip", lambda data: gzip.compress(data, 1, mtime=0)), ("zstd", zstd.compress))
    )
    draft.set_header("Content-Encoding", name)
    draft.text = pack(b" " * dice.choice((100_000, 6_000_000)) + draft.text)


def _multipart(dice: random.Random, draft: Draft) -> None:
    """Send the body as a form, whole or damaged."""
    boundary = dice.choice(("x", "----WebKitFormBoundary7", "a b", "'()+_,-./:=?"))
    parts = [
        ("request", 'name="request"', draft.text),
        ("asset-0", 'name="asset-0"; filename="asset-0"', PNG),
    ]
    hurt = dice.choice(
        (
            "",
            "",
            "no request",
            "no end",
            "cut",
            "no name",
            "twice",
            "odd name",
            "no image",
            "many",
            "crlf",
            "headers",
        )
    )
    if hurt == "no request":
        parts = parts[1:]
    elif hurt == "twice":
        parts += parts
    elif hurt == "odd name":
        parts.append(
            (
                "odd",
                dice.choice(
                    ('name="\xff"', "name*=utf-8''%ff", 'name=""', 'name="\x01"', f'name="{"n" * 3000}"')
                ),
                PNG,
            )
        )
    elif hurt == "no name":
        parts.append(("none", 'filename="a"', PNG))
    elif hurt == "no image":
        parts.append(("text", 'name="text"; filename="a"', b"no image"))
    elif hurt == "many":
        parts += [("a", f'name="asset-{n}"; filename="a"', PNG) for n in range(dice.choice((9, 40)))]
    end = b"\n" if hurt == "crlf" else b"\r\n"
    whole = b""
    for _, disposition, data in parts:
        extra = (b"X-A: " + b"a" * 20_000 + end) if hurt == "headers" else b""
        whole += (
            b"--"
            + boundary.encode()
            + end
            + b"Content-Disposition: form-data; "
            + disposition.encode("latin-1")
            + end
        )
        whole += extra + end + data + end
    whole += b"" if hurt == "no end" else b"--" + boundary.encode() + b"--" + end
    draft.text = whole[: dice.randrange(len(whole))] if hurt == "cut" else whole
    draft.set_header("Content-Type", f'multipart/form-data; boundary="{boundary}"')


def _as_lines(dice: random.Random, draft: Draft) -> None:
    draft.set_header("Content-Type", "application/x-ndjson")
    lines = [
        draft.text,
        b'{"state":"a"}',
        b"",
        b'{"state":{}}',
        b'{"state":null}',
        b"[]",
        b"\xff",
        b'{"state":"a","id":""}',
    ]
    if isinstance(draft.body, dict) and dice.random() < 0.7:
        head = {key: value for key, value in draft.body.items() if key not in ("items", "state")}
        lines[0] = json.dumps(head).encode()
    draft.text = dice.choice((b"\n", b"\r\n", b"\r")).join(
        [lines[0], *dice.choices(lines[1:], k=dice.randrange(5))]
    )


TRANSPORTS: Sequence[Change] = (
    _other_type,
    _no_type,
    _compressed,
    _compressed_garbage,
    _falsely_compressed,
    _bomb,
    _multipart,
    _multipart,
    _multipart,
    _as_lines,
    _as_lines,
)
