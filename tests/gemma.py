"""A Gemma-size tokenizer with DiffusionGemma's control tokens, from files that `make tokenizer` fetches."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from structured_server.tokenizer import LoadedTokenizer, load_tokenizer

ROOT = Path(__file__).parent.parent
FETCHED = ROOT / ".cache" / "gemma-tokenizer"
MADE = ROOT / ".cache" / "diffusiongemma-tokenizer"


@cache
def diffusion_gemma_tokenizer() -> LoadedTokenizer:
    """Return the tokenizer; skip the test where its files are absent, fail it in CI."""
    if not (FETCHED / "tokenizer.json").exists():
        reason = "the Gemma tokenizer is absent: make tokenizer"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    if not (MADE / "tokenizer.json").exists():
        _make()
    return load_tokenizer(str(MADE))


def _make() -> None:
    """Give Gemma 3's vocabulary the control tokens and chat template that DiffusionGemma has."""
    sys.path.insert(0, str(ROOT / "engine"))
    make_tokenizer = importlib.import_module("make_tokenizer")

    MADE.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "engine" / "chat_template.jinja", MADE)
    special = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad", "unk")}
    (MADE / "tokenizer_config.json").write_text(json.dumps(special), "utf-8")
    text = json.dumps(make_tokenizer.gemma(FETCHED), ensure_ascii=False)
    (MADE / "tokenizer.json.part").write_text(text, "utf-8")
    (MADE / "tokenizer.json.part").rename(MADE / "tokenizer.json")
