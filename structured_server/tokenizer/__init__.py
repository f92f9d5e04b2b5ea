"""The only package that knows tokenizer files and chat templates: it turns typed segments into ids.

source -> files -> token model (tokenizers or sentencepiece) + chat format -> LoadedTokenizer
"""

from __future__ import annotations

from structured_server.tokenizer.load import load_tokenizer
from structured_server.tokenizer.loaded import LoadedTokenizer

__all__ = ["LoadedTokenizer", "load_tokenizer"]
