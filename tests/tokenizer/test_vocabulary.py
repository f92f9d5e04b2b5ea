"""What the vocabulary answers: variants, noise, sizes; against brute force over all of its entries."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders

from structured_server.core import tokens
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from structured_server.tokenizer.spelling import Spelling
from tests.tokenizer import folders

WITH_JSON = ("gemma_like", "byte_level", "unigram", "gemma")


def entries(folder: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Return (what each entry of the vocabulary reads as, the added tokens) with the library alone."""
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = {token_id: token.content for token_id, token in library.get_added_tokens_decoder().items()}
    read = decoders.ByteLevel().decode if '"ByteLevel"' in json.dumps(head(folder)) else ("".join)
    texts = {
        i: read([entry]).replace("▁", " ") for entry, i in library.get_vocab(True).items() if i not in added
    }
    return texts, added


def head(folder: Path) -> object:
    """Return the file's pre-tokenizer, which tells byte-level vocabularies."""
    return json.loads((folder / "tokenizer.json").read_bytes())["pre_tokenizer"]


@pytest.mark.parametrize("kind", WITH_JSON)
def test_variants_are_all_entries_equal_after_stripping_white_space(
    kind: str, folder_of: Callable[[str], Path], tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """For some hundred labels, brute force over the whole vocabulary finds no other."""
    tokenizer = tokenizer_of(kind)
    texts, _ = entries(folder_of(kind))
    by_core: dict[str, list[int]] = {}
    for token_id, text in sorted(texts.items()):
        by_core.setdefault(text.strip(), []).append(token_id)
    labels = [i for i, text in texts.items() if text.strip() and "\ufffd" not in text]
    labels = [i for i in labels if not re.fullmatch("<0x[0-9A-F]{2}>", texts[i])]
    several = [i for i in labels if len(by_core[texts[i].strip()]) > 1]
    assert several, "the vocabulary has variants"
    sample = random.Random(0).sample
    for label in {*sample(labels, min(700, len(labels))), *sample(several, min(300, len(several)))}:
        assert tuple(by_core[texts[label].strip()]) == tokenizer.variants(label), texts[label]


def test_tokens_read_together_as_the_text_that_they_were_made_of(tokenizer: LoadedTokenizer) -> None:
    """Characters that are several tokens are put together again."""
    for text in ("yes no", "The pager is down: 北京, 😀 é", " two\n\nlines "):
        ids = tokenizer.encode(text)
        if all(tokenizer.token_text(token_id) != "<unk>" for token_id in ids):
            assert text.strip() == tokenizer.text(ids).strip()
    assert "" == tokenizer.text(())


def test_a_piece_of_a_character_reads_as_a_replacement_and_an_unknown_id_as_nothing(
    tokenizer_of: Callable[[str], LoadedTokenizer],
) -> None:
    """A thought may be cut anywhere."""
    for kind in ("gemma_like", "byte_level"):
        tokenizer = tokenizer_of(kind)
        *_, last = cut = tokenizer.encode("yes 😀")
        assert len(cut) > 2, kind
        assert tokenizer.text(cut[:-1]).startswith("yes "), kind
        assert "\ufffd" in tokenizer.text(cut[:-1]), kind
        assert tokenizer.text([*cut, 10**8]) == "yes 😀", kind
        assert last != cut[0]


def test_variants_keep_case_and_include_the_label(tokenizer: LoadedTokenizer) -> None:
    """`Yes` is another label than `yes`; a spaced label leads to the same set."""
    label = tokenizer.encode("yes")[0]
    word = tokenizer.token_text(label).strip()
    variants = tokenizer.variants(label)
    assert label in variants
    assert {word} == {tokenizer.token_text(i).strip() for i in variants}
    assert all(variants == tokenizer.variants(i) for i in variants)
    assert list(variants) == sorted(set(variants))


def test_a_token_without_letters_of_its_own_is_its_only_variant(tokenizer: LoadedTokenizer) -> None:
    """White space strips to nothing, and a control token has no variants."""
    (space, *_) = tokenizer.encode("\n\n")
    for token_id in (space, tokenizer.turn_close, tokenizer.vocabulary_size + 5):
        assert (token_id,) == tokenizer.variants(token_id)


@pytest.mark.parametrize("kind", WITH_JSON)
def test_noise_is_every_entry_that_is_text_and_nothing_else(
    kind: str, folder_of: Callable[[str], Path], tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """No added token, no piece of a character, no white space; and nothing is left out without reason."""
    tokenizer = tokenizer_of(kind)
    texts, _ = entries(folder_of(kind))
    pieces = {i for i, text in texts.items() if re.fullmatch("<0x[0-9A-F]{2}>", text)}
    broken = {i for i, text in texts.items() if "\ufffd" in text and kind == "byte_level"}
    expected = {i for i, text in texts.items() if text.strip()} - pieces - broken
    assert sorted(expected) == list(tokenizer.noise_ids)


def test_noise_ids_ascend_and_hold_no_added_token(tokenizer: LoadedTokenizer) -> None:
    """Noise is drawn by position in this sequence, so its order is part of the method."""
    noise = list(tokenizer.noise_ids)
    assert noise == sorted(set(noise))
    assert tokenizer.control_ids.isdisjoint(noise)
    assert all(tokenizer.token_text(i).strip() for i in noise)
    assert 0 <= noise[0]
    assert noise[-1] < tokenizer.vocabulary_size


@pytest.mark.parametrize("kind", WITH_JSON)
def test_the_vocabulary_size_is_one_more_than_the_largest_id(
    kind: str, folder_of: Callable[[str], Path], tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """Added tokens outside of the model's vocabulary count."""
    library = Tokenizer.from_file(str(folder_of(kind) / "tokenizer.json"))
    assert 1 + max(library.get_vocab(True).values()) == tokenizer_of(kind).vocabulary_size


def test_reserved_entries_that_are_no_added_tokens_are_no_noise(tmp_path: Path) -> None:
    """Some vocabularies hold unused and image entries without listing them."""
    folder = folders.gemma_like(tmp_path)
    path = folder / "tokenizer.json"
    file = json.loads(path.read_bytes())
    hidden = ("<unused3>", "<|image|>", "<image_soft_token>")
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] not in hidden]
    path.write_text(json.dumps(file), encoding="utf-8")
    noise = {load_tokenizer(str(folder)).token_text(i) for i in load_tokenizer(str(folder)).noise_ids}
    assert noise.isdisjoint(hidden)


def test_a_vocabulary_with_holes_is_read_to_its_end(tmp_path: Path) -> None:
    """Ids need not be contiguous."""
    folder = folders.byte_level(tmp_path)
    path = folder / "tokenizer.json"
    file = json.loads(path.read_bytes())
    vocabulary, merges = file["model"]["vocab"], file["model"]["merges"]
    shifted = {entry: i if i < 300 else i + 1000 for entry, i in vocabulary.items()}
    file["model"] = {**file["model"], "vocab": shifted, "merges": merges}
    file["added_tokens"] = [{**token, "id": token["id"] + 1000} for token in file["added_tokens"]]
    path.write_text(json.dumps(file), encoding="utf-8")
    library = Tokenizer.from_file(str(path))
    tokenizer = load_tokenizer(str(folder))
    assert 1 + max(library.get_vocab(True).values()) == tokenizer.vocabulary_size
    assert max(shifted.values()) in tokenizer.noise_ids


def test_tokens_read_as_text_for_people(tokenizer_of: Callable[[str], LoadedTokenizer]) -> None:
    """Spaces are spaces, control tokens are their strings, unknown ids are numbers."""
    for kind in ("gemma_like", "byte_level"):
        tokenizer = tokenizer_of(kind)
        assert [" yes", " café"] == [tokenizer.token_text(i) for i in tokenizer.encode(" yes café")]
        assert "<id 99999>" == tokenizer.token_text(99999)
    assert "<turn|>" == tokenizer_of("gemma_like").token_text(tokenizer_of("gemma_like").turn_close)
    assert "  " == tokenizer_of("gemma_like").token_text(tokenizer_of("gemma_like").encode("▁▁")[0])
    assert "<0xC3>" == tokenizer_of("gemma_like").token_text(tokenizer_of("gemma_like").encode("ß")[0])
    emoji = tokenizer_of("byte_level").encode("😀")
    assert {"\ufffd"} == {tokenizer_of("byte_level").token_text(i) for i in emoji}


def test_spelling_and_reading_are_inverse() -> None:
    """For texts in every script, in each way of spelling."""
    for text in ("yes", " yes\n", "Größe 北京", "\t\x00\xad😀", '"}'):
        for spelling in Spelling:
            assert text == spelling.text(spelling.spell(text))
    assert Spelling.BYTES.text("Ã") is None
    assert Spelling.SENTENCEPIECE.text("<0xC3>") is None
    assert "Ġyes" == Spelling.BYTES.spell(" yes")
    assert "a b" == Spelling.BYTES.text("a b"), "an added token is not spelled in bytes"


def test_a_loaded_tokenizer_is_what_the_core_asks_for(tokenizer: LoadedTokenizer) -> None:
    """The type checker proves it here."""
    core: tokens.Tokenizer = tokenizer
    assert core.vocabulary_size > 0
