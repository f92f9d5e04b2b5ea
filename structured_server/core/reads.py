"""Reads: one draw of noise on one canvas, what is asked of a backend, and what it must answer."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from structured_server.core.canvas import Canvas
from structured_server.core.tokens import Segment
from structured_server.errors import UpstreamProtocolError

SlotFill = Literal["noise", "mask"]

LARGEST_LOGPROB = 1e-3
"""Rounding may lift a log-probability a little above 0; more than this is nonsense."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as token ids, and as the segments they came from for routes that take messages."""

    ids: tuple[int, ...]
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read: a prompt, a seed canvas with its slots filled, and what to report about the slots.

    `positions` are the slots, ascending; `label_ids` the ids, ascending, whose log-probabilities are wanted
    at every one of them.
    """

    prompt: Prompt
    canvas: tuple[int, ...]
    positions: tuple[int, ...]
    label_ids: tuple[int, ...]

    @property
    def width(self) -> int:
        """The canvas's length in tokens."""
        return len(self.canvas)


@dataclass(frozen=True, slots=True)
class Row:
    """Log-probabilities at one canvas position, over the whole vocabulary at temperature 1.

    `top` is the id that the model prefers there, None where a backend does not say.
    """

    logprobs: Mapping[int, float]
    top: int | None


@dataclass(frozen=True, slots=True)
class Read:
    """A backend's answer: a row for each of the request's positions, and what it cost in tokens."""

    rows: tuple[Row, ...]
    prompt_tokens: int
    cached_tokens: int | None = None


def checked(request: ReadRequest, read: Read) -> Read:
    """Return the read if it holds all that was asked for; log-probabilities just above 0 become 0.

    Raises:
        UpstreamProtocolError: a row or an id is missing, or a value cannot be a log-probability.
    """
    if len(read.rows) != len(request.positions):
        raise UpstreamProtocolError(f"{len(read.rows)} rows came back for {len(request.positions)} slots.")
    rows = []
    for position, row in zip(request.positions, read.rows, strict=True):
        missing = [i for i in request.label_ids if i not in row.logprobs]
        if missing:
            raise UpstreamProtocolError(
                f"position {position} has no log-probability for label ids {missing}."
            )
        values = {i: row.logprobs[i] for i in request.label_ids}
        for token_id, value in values.items():
            if math.isnan(value) or value > LARGEST_LOGPROB:
                raise UpstreamProtocolError(
                    f"position {position} has {value} for id {token_id}, which is no log-probability."
                )
        rows.append(Row({i: min(value, 0.0) for i, value in values.items()}, row.top))
    return Read(tuple(rows), read.prompt_tokens, read.cached_tokens)


def derive_seed(caller_seed: int, state: str, questions: str) -> bytes:
    """Derive the noise seed of a canvas from what it is about.

    Never from ids, metadata or the place of a group among others, so that adding a question that is read
    apart, or renaming one, moves nothing.
    """
    digest = blake2b(digest_size=32)
    for part in (str(caller_seed), state, questions):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def fill_with_noise(canvas: Canvas, seed: bytes, draw: int, noise_ids: Sequence[int]) -> tuple[int, ...]:
    """Return the canvas with each slot holding its own random token of `noise_ids` (ascending).

    A seeded token competes for probability in its slot, so no label id of any slot is ever drawn.

    Raises:
        ValueError: `noise_ids` holds nothing but label ids.
    """
    labels = frozenset(canvas.label_ids)
    if len(noise_ids) <= sum(_holds(noise_ids, label) for label in labels):
        raise ValueError("the vocabulary leaves no token to use as noise")
    numbers = _number_stream(seed, draw, len(noise_ids))
    filled = list(canvas.ids)
    for slot in canvas.slots:
        filled[slot.position] = next(
            noise for noise in (noise_ids[number] for number in numbers) if noise not in labels
        )
    return tuple(filled)


def fill_with_mask(canvas: Canvas, mask: int) -> tuple[int, ...]:
    """Return the canvas with the mask token in each slot."""
    filled = list(canvas.ids)
    for slot in canvas.slots:
        filled[slot.position] = mask
    return tuple(filled)


def _holds(ascending: Sequence[int], value: int) -> bool:
    index = bisect_left(ascending, value)
    return index < len(ascending) and ascending[index] == value


def _number_stream(seed: bytes, draw: int, below: int) -> Iterator[int]:
    """Yield uniform numbers in [0, below) from a counter hashed under the seed."""
    counter = 0
    while True:
        block = blake2b(f"{draw}:{counter}".encode(), key=seed, digest_size=8).digest()
        # 64 bits over at most 2**18 entries: the modulo bias is below 2**-46.
        yield int.from_bytes(block, "big") % below
        counter += 1
