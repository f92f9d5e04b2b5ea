"""Reads: one draw of noise on one canvas, what is asked of a backend, and what it must answer."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from structured_server.core.canvas import Canvas
from structured_server.core.tokens import Segment
from structured_server.errors import UpstreamProtocolError

SlotFill = Literal["noise", "mask"]

LARGEST_LOGPROB = 1e-3
"""Rounding may lift a log-probability a little above 0; more than this is nonsense."""

ANCHORS = 2
"""Label ids that every read of a wide set asks for, to see that all reads share one scale."""


ROUTED_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it came: its media type and its bytes."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as token ids, and as the segments they came from for routes that take messages.

    Images stand before the user's text; their tokens are the engine's business and not among the ids.
    Engines that keep prefixes do not share them between prompts whose `cache_salt` differs.
    """

    ids: tuple[int, ...]
    segments: tuple[Segment, ...] = ()
    images: tuple[Image, ...] = ()
    cache_salt: str = ""

    @property
    def routing_key(self) -> bytes:
        """What decides which of several engines reads it: its first tokens, which prefix caches keep."""
        ids = self.ids[:ROUTED_TOKENS]
        return struct.pack(f">{len(ids)}I", *ids)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read: a prompt, a seed canvas with its slots filled, and what to report about the slots.

    `positions` are the slots, ascending; `label_ids` the ids, ascending, whose log-probabilities are wanted
    at every one of them. With more than one of `steps` every other position is held at its seed. A
    `constrained` read is normalised over the label ids instead of the whole vocabulary.
    """

    prompt: Prompt
    canvas: tuple[int, ...]
    positions: tuple[int, ...]
    label_ids: tuple[int, ...]
    steps: int = 1
    constrained: bool = False

    @property
    def width(self) -> int:
        """The canvas's length in tokens."""
        return len(self.canvas)

    @property
    def pinned(self) -> tuple[int, ...]:
        """The positions that are no slots."""
        slots = frozenset(self.positions)
        return tuple(position for position in range(self.width) if position not in slots)


@dataclass(frozen=True, slots=True)
class Row:
    """Log-probabilities at one canvas position, over the whole vocabulary at temperature 1.

    `top` is the id that the model prefers there, None where a backend does not say; `top_logprob` is its
    log-probability, which serves to compare reads and is no part of what one says.
    """

    logprobs: Mapping[int, float]
    top: int | None
    top_logprob: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model wrote in its thought channel before it was read.

    `closed` tells whether it came to an end by itself. `seconds` is what writing it took.
    """

    ids: tuple[int, ...]
    text: str
    closed: bool
    seconds: float


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
    rows = tuple(
        _checked_row(position, row, request.label_ids)
        for position, row in zip(request.positions, read.rows, strict=True)
    )
    return Read(rows, read.prompt_tokens, read.cached_tokens)


def _checked_row(position: int, row: Row, label_ids: Sequence[int]) -> Row:
    try:
        values = [row.logprobs[i] for i in label_ids]
    except KeyError:
        missing = [i for i in label_ids if i not in row.logprobs]
        raise UpstreamProtocolError(
            f"position {position} has no log-probability for label ids {missing}."
        ) from None
    for token_id, value in zip(label_ids, values, strict=True):
        if not value <= LARGEST_LOGPROB:  # NaN is refused too
            raise UpstreamProtocolError(
                f"position {position} has {value} for id {token_id}, which is no log-probability."
            )
    if max(values) > 0:
        values = [min(value, 0.0) for value in values]
    return Row(dict(zip(label_ids, values, strict=True)), row.top, row.top_logprob)


def label_chunks(label_ids: Sequence[int], cap: int | None) -> tuple[tuple[int, ...], ...]:
    """Cut label ids into sets that one read each may ask for, all of them ascending.

    Reads of one canvas share one scale. To see whether they do, every further chunk asks again for
    `ANCHORS` ids of the first.
    """
    if cap is None or len(label_ids) <= cap:
        return (tuple(label_ids),)
    anchors = label_ids[:ANCHORS]
    size = cap - ANCHORS
    rest = label_ids[cap:]
    chunks = [tuple(label_ids[:cap])]
    chunks += (tuple(sorted((*anchors, *rest[i : i + size]))) for i in range(0, len(rest), size))
    return tuple(chunks)


def drift(first: Read, other: Read) -> float:
    """Return how far two reads of one canvas are apart, in nats.

    At the ids that both were asked for, and in what the model gives to the id that it likes best, whichever
    that is: labels may all be at the bottom.
    """
    apart = [0.0]
    for one, two in zip(first.rows, other.rows, strict=True):
        pairs = [(one.logprobs[i], two.logprobs[i]) for i in one.logprobs.keys() & two.logprobs.keys()]
        if one.top_logprob is not None and two.top_logprob is not None:
            pairs.append((one.top_logprob, two.top_logprob))
        apart += (0.0 if a == b else abs(a - b) for a, b in pairs)  # both may be -inf
    return max(apart)


def merge(reads: Sequence[Read]) -> Read:
    """Put the reads of one canvas's label chunks together. What the first says of an id counts."""
    rows = []
    for parts in zip(*(read.rows for read in reads), strict=True):
        logprobs: dict[int, float] = {}
        for part in reversed(parts):
            logprobs.update(part.logprobs)
        rows.append(Row(logprobs, parts[0].top, parts[0].top_logprob))
    return Read(tuple(rows), reads[0].prompt_tokens, reads[0].cached_tokens)


def derive_seed(caller_seed: int, state: str, *content: str) -> bytes:
    """Derive the noise seed of a canvas from what it is about: the state, and what its questions say.

    Never from ids, metadata or the place of a group among others, so that adding a question that is read
    apart, or renaming one, moves nothing.
    """
    digest = blake2b(digest_size=32)
    for part in (str(caller_seed), state, *content):
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
    # No more labels than there are can be among them: mostly that is answer enough.
    if len(noise_ids) <= len(labels) and len(noise_ids) <= sum(_holds(noise_ids, label) for label in labels):
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
