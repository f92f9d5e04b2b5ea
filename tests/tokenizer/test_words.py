"""Tokenising word by word gives the ids of the whole text, wherever it is done at all."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structured_server.tokenizer import load_tokenizer
from structured_server.tokenizer.fast import FastModel
from structured_server.tokenizer.loaded import LoadedTokenizer
from structured_server.tokenizer.tokenizer_json import TokenizerJson
from structured_server.tokenizer.words import LEARNED_AT_ONCE, Words, reaches_across
from tests.gemma import diffusion_gemma_tokenizer

ROOT = Path(__file__).parents[2]
HOSTILE = st.text(st.sampled_from(' \n\t<>/"{}.,ab▁é北😀\u200b\r\x00') | st.characters(), max_size=80)
CROSSING = ">▁</"


def whole(tokenizer: LoadedTokenizer, text: str) -> tuple[int, ...]:
    """Return the ids of a text that was not taken apart."""
    return tuple(tokenizer._model.encode(text, leading=False)) if text else ()


def test_gemmas_vocabulary_has_one_entry_that_reaches_across() -> None:
    tokenizer = diffusion_gemma_tokenizer()
    assert tokenizer._model.by_joining
    assert (CROSSING,) == tokenizer._vocabulary.across


@settings(max_examples=2000, deadline=None)
@given(HOSTILE)
def test_any_text_has_the_ids_of_the_whole(text: str) -> None:
    tokenizer = diffusion_gemma_tokenizer()
    assert whole(tokenizer, text) == tokenizer.encode(text) == tokenizer.encode(text), "known words included"


def test_the_projects_own_texts_have_the_ids_of_the_whole() -> None:
    tokenizer = diffusion_gemma_tokenizer()
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("structured_server/*/*.py"), *ROOT.glob("deploy/**/*.y*ml")]
    assert len(files) > 60
    for file in files:
        text = file.read_text("utf-8")
        for start in range(0, len(text), 300):  # few enough new words to be taken one by one
            piece = text[start : start + 300]
            assert whole(tokenizer, piece) == tokenizer.encode(piece) == tokenizer.encode(piece), file


def test_text_with_such_an_entry_is_tokenised_whole() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    words = Words(encode, [CROSSING])
    for text in ("<b> </b> and more", "a ▁ b"):
        assert [len(text)] == words.encode(text)
    assert ["<b> </b> and more", "a ▁ b"] == asked


def test_known_words_are_not_tokenised_again() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [hash(text)]

    words = Words(encode, [])
    first = words.encode("one two  three\n\ntwo ")
    assert ["one", " two", "  three", "\n\n", "two", " "] == asked
    assert first == words.encode("one two  three\n\ntwo ")
    assert 6 == len(asked)
    words.encode("x" * 33)
    words.encode("x" * 33)
    assert 8 == len(asked), "what is no word is not remembered"


def test_a_text_of_unknown_words_is_tokenised_whole_and_some_are_learnt() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    words = Words(encode, [])
    text = " ".join(f"w{number}" for number in range(1000))
    assert [len(text)] == words.encode(text)
    assert LEARNED_AT_ONCE + 1 == len(asked)
    for _ in range(1000 // LEARNED_AT_ONCE):
        words.encode(text)
    assert 1000 == len(words.encode(text)), "all are known in the end"


def test_a_long_text_is_left_to_the_library() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    text = "word " * 10_000
    assert [len(text)] == Words(encode, []).encode(text)
    assert [text] == asked


def test_the_number_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structured_server.tokenizer.words.MOST_WORDS", 100)
    words = Words(lambda text: [len(text)], [])
    for number in range(1000):
        text = f"w{number} w{number % 7}"
        assert [len(piece) for piece in (f"w{number}", f" w{number % 7}")] == words.encode(text)
        assert len(words._known) <= 100


@pytest.mark.parametrize(
    ("entry", "across"),
    [
        ("▁the", False), ("▁▁▁", False), ("\n\n", False), ("word", False), ("</", False),
        ("a▁", True), (">▁</", True), ("\nx", True), ("\n▁", True), ("▁\n", True), ("x\n", True),
        ("a b", True),
    ],
)  # fmt: skip
def test_entries_that_reach_across_are_known(entry: str, across: bool) -> None:
    assert across == reaches_across(entry)


CHANGES: dict[str, dict[str, Any]] = {
    "another normalizer": {"normalizer": {"type": "NFC"}},
    "words are split by the file": {"pre_tokenizer": {"type": "Whitespace"}},
    "merges with chance": {"dropout": 0.1},
    "whole words first": {"ignore_merges": True},
    "unknown characters run together": {"byte_fallback": False},
    "an added token takes spaces with it": {"lstrip": True},
}


def small_file() -> dict[str, Any]:
    """Return a tokenizer file of Gemma's kind."""
    entries = [*(f"<0x{byte:02X}>" for byte in range(256)), "<unk>", "▁", "a", "b", "ab", "▁a", "  "]
    model = {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False,
        "vocab": {entry: number for number, entry in enumerate(entries)},
        "merges": [["a", "b"], ["▁", "a"]],
    }  # fmt: skip
    added = {"id": 262, "content": "  ", "special": False, "normalized": False}
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added | flags],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip


def test_a_small_file_of_gemmas_kind_is_read_word_by_word() -> None:
    assert FastModel(TokenizerJson.parse(json.dumps(small_file()).encode()), (), frozenset()).by_joining


@pytest.mark.parametrize("change", CHANGES)
def test_other_kinds_of_tokenizers_take_texts_whole(change: str) -> None:
    whole_file = small_file()
    for name, value in CHANGES[change].items():
        if name in ("normalizer", "pre_tokenizer"):
            whole_file[name] = value
        elif name == "lstrip":
            whole_file["added_tokens"][0]["lstrip"] = True
        else:
            whole_file["model"][name] = value
    model = FastModel(TokenizerJson.parse(json.dumps(whole_file).encode()), (), frozenset())
    assert not model.by_joining


def test_the_packaged_tokenizer_gives_the_ids_of_the_whole() -> None:
    tokenizer = load_tokenizer(str(ROOT / "structured_server" / "data" / "triage"))
    for number in range(300):
        chance = random.Random(number)
        text = "".join(chance.choice(" \nab<>/▁é😀.") for _ in range(60))
        assert whole(tokenizer, text) == tokenizer.encode(text)
