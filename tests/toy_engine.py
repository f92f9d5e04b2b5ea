"""The toy tokenizer with what a vLLM backend, and the fake engine, need beside it."""

from __future__ import annotations

import re

from structured_server.core.tokens import Kind, Segment
from tests.toy import ToyTokenizer


class ToyEngineTokenizer(ToyTokenizer):
    """Implements `backends.vllm.EngineTokenizer`."""

    def encode_like_engine(self, text: str) -> list[int]:
        """Tokenise text in which control tokens are recognised."""
        return list(self.encode_prompt([Segment(Kind.CONTROL, text)]))

    def neutralise(self, text: str) -> str:
        """Replace every character that stands for a control token."""
        return re.sub("[\ue000-\ue006]", "\ufffd", text)
