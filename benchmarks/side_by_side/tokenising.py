"""What tokenising a new text costs by itself."""

from __future__ import annotations

import itertools
import time
from statistics import median

from benchmarks.side_by_side.requests import states
from structured_server.tokenizer import LoadedTokenizer

TEXTS = 200


def tokenising_us(tokenizer: LoadedTokenizer, tokens: int) -> dict[str, float]:
    """Return microseconds for a text of known words, and as the engine does it: by the library, whole."""
    texts = list(itertools.islice(states(tokens, "tokenising"), TEXTS))
    for text in texts[:20]:
        tokenizer.encode(text)
    known, whole = [], []
    for text in texts[20:]:
        begun = time.process_time()
        tokenizer.encode(text)
        known.append(time.process_time() - begun)
        begun = time.process_time()
        tokenizer.encode_like_engine(text)
        whole.append(time.process_time() - begun)
    return {"word by word": 1e6 * median(known), "whole": 1e6 * median(whole)}
