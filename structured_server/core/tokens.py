"""What the core needs to know of a tokenizer, and the typed prompt it hands to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Kind(Enum):
    """How a piece of prompt may be tokenised."""

    CONTROL = "control"  # from the chat template: control tokens are recognised
    TEXT = "text"  # ours or the caller's questions: never a control token
    STATE = "state"  # what the questions are about: never a control token


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of prompt text of one kind."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The control text that a chat template puts around a system and a user message.

    The whole prompt is `start + system + middle + user + end`, or, without a system message,
    `start_user + user + end`. It ends at the model's turn.
    """

    start: str
    middle: str
    end: str
    start_user: str
    strips: bool  # the template strips white space around each message's content


class Tokenizer(Protocol):
    """A vocabulary with its chat format. Every id is in [0, vocabulary_size)."""

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest token id."""

    @property
    def chat(self) -> ChatFormat:
        """The control text around the messages of a prompt."""

    @property
    def turn_close(self) -> int:
        """The id that ends a turn."""

    @property
    def padding(self) -> int:
        """The id that fills the canvas after the turn's end: the end-of-sequence token."""

    @property
    def mask(self) -> int | None:
        """The mask token's id, for models that were trained with one."""

    @property
    def scaffold(self) -> tuple[int, ...]:
        """The ids of the empty thought block; () for a model without a thought channel."""

    @property
    def thinking(self) -> ChatFormat | None:
        """The control text of a prompt whose model is to think first; None for one that cannot."""

    @property
    def scaffold_in_prompt(self) -> bool:
        """Whether the chat format's `end` already ends with the scaffold."""

    @property
    def noise_ids(self) -> Sequence[int]:
        """The ids that may fill a slot, ascending: no added, byte-fallback or image token."""

    @property
    def fingerprint(self) -> str:
        """A short digest of everything that decides ids and prompts."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise text in which no control token is recognised."""

    def encode_prompt(self, segments: Sequence[Segment]) -> tuple[int, ...]:
        """Tokenise a prompt as the joint text between control tokens."""

    def variants(self, label_id: int) -> tuple[int, ...]:
        """Return the ids, ascending, equal to this one after stripping white space only."""

    def token_text(self, token_id: int) -> str:
        """Return what the token reads as, for people."""

    def text(self, ids: Sequence[int]) -> str:
        """Return what the tokens read as together, for people."""
