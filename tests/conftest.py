"""What every folder of tests shares."""

from __future__ import annotations

import pytest

from structured_server.tokenizer import LoadedTokenizer
from tests.gemma import diffusion_gemma_tokenizer


@pytest.fixture(scope="session")
def gemma() -> LoadedTokenizer:
    """A Gemma-size tokenizer with DiffusionGemma's control tokens."""
    return diffusion_gemma_tokenizer()
