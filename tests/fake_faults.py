"""What may go wrong with the fake engine: always, or with a share of its reads that anybody can recompute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

from tests.fake_replies import BodyFault

Kind = Literal[
    "delay",
    "drip",
    "hang",
    "reset",
    "truncated",
    "fewer_rows",
    "nan",
    "wrong_ids",
    "rejected",
    "failed",
]

KINDS: Mapping[Kind, Mapping[str, Any]] = {
    "delay": {"delay_s": 0.25},
    "drip": {"drip_s": 0.03},
    "hang": {"hang": True},
    "reset": {"reset": True},
    "truncated": {"body": "truncated"},
    "fewer_rows": {"body": "fewer_rows"},
    "nan": {"body": "nan"},
    "wrong_ids": {"body": "wrong_ids"},
    "rejected": {"status": 400},
    "failed": {"status": 500},
}
"""What each kind of fault in a mix does to the read that it meets."""

SLOW: frozenset[Kind] = frozenset({"delay", "drip"})
"""Those that the reply survives: it comes late, and whole."""


@dataclass(slots=True)
class Faults:
    """What goes wrong. By default nothing does; each may be switched while the engine runs."""

    # With reads, once this many have gone right.
    good_reads: int = 0
    delay_s: float = 0.0  # from the read's arrival to its reply
    hang: bool = False
    drip_s: float = 0.0  # the pause after each eighth of the reply
    reset: bool = False  # the connection breaks in the middle of the reply
    stale: Literal["closed", "reset"] | None = None  # a connection that was used before breaks at once
    status: int | None = None  # an error reply in vLLM's form
    body: BodyFault | None = None
    # With a share of the reads, one of the kinds; with the others, what stands above.
    mix: Sequence[Kind] = ()
    share: float = 0.0
    seed: int = 0
    # With the engine as a whole.
    images_fail: bool = False  # with a 500, wherever they come
    dead: bool = False
    routed: bool = False  # it stands behind a router like smg, which lets chat through and little else
    no_seeded_reads: bool = False  # the engine ignores what it does not know, as with any other model
    other_tokenizer: bool = False
    canvas: int | None = None
    model: str | None = None
    vocabulary_size: int | None = None

    def of(self, kind: Kind) -> Faults:
        """Return what goes wrong with a read that this kind of fault meets."""
        return replace(self, **KINDS[kind])


def chosen(faults: Faults, body: bytes, times: int) -> Kind | None:
    """Return the fault that meets a read: a function of the seed, of its bytes and of how often they came."""
    digest = blake2b(body, digest_size=16, key=b"%d:%d" % (faults.seed, times)).digest()
    if not faults.mix or int.from_bytes(digest[:8], "big") >= faults.share * 2**64:
        return None
    return faults.mix[int.from_bytes(digest[8:], "big") % len(faults.mix)]


class Tally:
    """How many reads came, how often the same bytes did, and which faults of the mix met them."""

    def __init__(self) -> None:
        self.reads = 0
        self.faults: Counter[Kind] = Counter()
        self._times: Counter[bytes] = Counter()

    def met(self, faults: Faults, body: bytes) -> Kind | None:
        """Count a read, and return the fault that it meets."""
        self.reads += 1
        if not faults.mix:
            return None
        name = blake2b(body, digest_size=16).digest()
        kind = chosen(faults, body, self._times[name])
        self._times[name] += 1
        if kind is not None:
            self.faults[kind] += 1
        return kind
