"""Tokenizer folders of each kind, what this package makes of them, and what transformers does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from tests.tokenizer import folders

_BUILDERS: dict[str, Callable[[Path], Path]] = {
    "gemma_like": folders.gemma_like,
    "byte_level": folders.byte_level,
    "ignore_merges": lambda folder: folders.byte_level(folder, ignore_merges=True),
    "unigram": folders.unigram,
    "sentencepiece_bpe": folders.sentencepiece_bpe,
    "sentencepiece_unigram": folders.sentencepiece_unigram,
}
REAL = "gemma"
KINDS = (*_BUILDERS, REAL)


def real_gemma() -> Path:
    """Return the folder of Gemma's own tokenizer, or skip; in CI its absence is a failure."""
    default = Path(__file__).parents[2] / ".cache" / "gemma-tokenizer"
    folder = Path(os.environ.get("STRUCTURED_SERVER_GEMMA_TOKENIZER") or default)
    if not (folder / "tokenizer.json").is_file():
        reason = "no Gemma tokenizer: set STRUCTURED_SERVER_GEMMA_TOKENIZER or fill .cache/gemma-tokenizer"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a kind of tokenizer, built once."""

    @cache
    def folder(kind: str) -> Path:
        return real_gemma() if kind == REAL else _BUILDERS[kind](tmp_path_factory.mktemp(kind))

    return folder


@pytest.fixture(scope="session")
def tokenizer_of(folder_of: Callable[[str], Path]) -> Callable[[str], LoadedTokenizer]:
    """Return this package's tokenizer of a kind, loaded once."""
    return cache(lambda kind: load_tokenizer(str(folder_of(kind))))


@pytest.fixture(scope="session")
def oracle_of(folder_of: Callable[[str], Path]) -> Callable[[str], Any]:
    """Return transformers' tokenizer of a kind, loaded once."""

    @cache
    def oracle(kind: str) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder_of(kind)))

    return oracle


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name each kind of tokenizer in turn."""
    name: str = request.param
    return name


@pytest.fixture
def tokenizer(kind: str, tokenizer_of: Callable[[str], LoadedTokenizer]) -> LoadedTokenizer:
    """Return this package's tokenizer of each kind in turn."""
    return tokenizer_of(kind)


@pytest.fixture
def gemma_like(tmp_path: Path) -> Path:
    """Return a fresh folder to be spoilt."""
    return folders.gemma_like(tmp_path / "folder")


@pytest.fixture(scope="session")
def run() -> Callable[[str], str]:
    """Return what runs a program in a process of its own, and gives back what it prints."""

    def output(program: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout

    return output
