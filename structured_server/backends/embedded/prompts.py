"""The keys and values of prompts that were read lately, so that none is encoded twice."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
KeysValues = NDArray[np.float32]
"""[layers, 2, 1, key-value heads, tokens, head dimension]"""


class KeptPrompts:
    """Prompts with their keys and values, those used last, up to a number of tokens in all."""

    def __init__(self, empty: KeysValues, *, tokens: int) -> None:
        self._empty = empty
        self._room = tokens
        self._kept: OrderedDict[bytes, tuple[Ids, KeysValues]] = OrderedDict()

    @property
    def tokens(self) -> int:
        """How many tokens are kept."""
        return sum(len(ids) for ids, _ in self._kept.values())

    def longest_start(self, prompt: Ids) -> KeysValues:
        """Return the keys and values of as much of the prompt's start as any kept prompt begins with."""
        name = prompt.tobytes()
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name][1]
        shared = {other: _shared(prompt, ids) for other, (ids, _) in self._kept.items()}
        best = max(shared, key=shared.__getitem__, default=b"")
        if not shared or shared[best] == 0:
            return self._empty
        self._kept.move_to_end(best)
        return np.ascontiguousarray(self._kept[best][1][..., : shared[best], :])

    def keep(self, prompt: Ids, keys_values: KeysValues) -> None:
        """Keep a prompt, as the one used last."""
        name = prompt.tobytes()
        self._kept[name] = (prompt, keys_values)
        self._kept.move_to_end(name)
        while self.tokens > self._room:
            self._kept.popitem(last=False)


def _shared(one: Ids, other: Ids) -> int:
    """Return how many ids two prompts share at their start."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length
