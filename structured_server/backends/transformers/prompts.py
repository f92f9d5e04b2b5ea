"""A store of what was computed for prompts, bounded by their tokens."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class PromptStore(Generic[Value]):
    """Keeps the values of the prompts used last, up to so many tokens; that of the last one at any length."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._values: OrderedDict[tuple[int, ...], Value] = OrderedDict()
        self._tokens = 0

    @property
    def tokens(self) -> int:
        """How many prompt tokens are kept."""
        return self._tokens

    def get(self, prompt: tuple[int, ...]) -> Value | None:
        """Return the value of a prompt, None where there is none."""
        if prompt in self._values:
            self._values.move_to_end(prompt)
        return self._values.get(prompt)

    def make_room(self, tokens: int) -> None:
        """Drop prompts, the longest unused first, until this many tokens fit or none is left."""
        while self._values and self._tokens + tokens > self._max_tokens:
            prompt, _ = self._values.popitem(last=False)
            self._tokens -= len(prompt)

    def put(self, prompt: tuple[int, ...], value: Value) -> None:
        """Keep the value of a prompt that is not kept yet."""
        self.make_room(len(prompt))
        self._values[prompt] = value
        self._tokens += len(prompt)

    def clear(self) -> None:
        """Drop all."""
        self._values.clear()
        self._tokens = 0
