"""Tokenizer files for the checkpoint: a small one trained here, or Gemma's with Gemma 4's control tokens.

The small one has the anatomy of Gemma's file, because that is where a proxy can go wrong: spaces become
"▁" before one BPE without any word splitting, bytes stand in for unknown characters, control tokens sit at
Gemma 4's low ids, runs of whitespace and HTML tags are added tokens, and nearly all added tokens are
`special: false`, control and image tokens among them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from string import ascii_uppercase, digits
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

CORPUS = Path(__file__).with_name("corpus.txt")

CONTROL = {
    0: "<pad>",
    1: "<eos>",
    2: "<bos>",
    3: "<unk>",
    4: "<mask>",
    5: "[multimodal]",
    46: "<|tool>",
    47: "<tool|>",
    48: "<|tool_call>",
    49: "<tool_call|>",
    50: "<|tool_response>",
    51: "<tool_response|>",
    52: '<|"|>',
    98: "<|think|>",
    100: "<|channel>",
    101: "<channel|>",
    105: "<|turn>",
    106: "<turn|>",
}
LAST_CONTROL = 106
SPECIAL = {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"}
MEDIA = {
    255_999: "<|image>",
    256_000: "<|audio>",
    258_880: "<|image|>",
    258_881: "<|audio|>",
    258_882: "<image|>",
    258_883: "<audio|>",
    258_884: "<|video|>",
}
GEMMA_SIZE = 262_144
LONGEST_RUN = 31
_HTML = """
    table caption thead tbody tfoot tr th td h1 h2 h3 h4 h5 h6 blockquote
    strong em b i u s sub sup code a html body img span ul li div iframe footer
"""

LETTERS = list(ascii_uppercase)
PAIRS = ["".join(pair) for pair in product(ascii_uppercase, repeat=2)]
DIGITS = list(digits)
_WORDS = """
    yes no true false none minor major critical low medium high positive neutral negative
    compute networking security storage billing urgent team severity calm annoyed furious
"""
WORDS = _WORDS.split()

Merge = tuple[str, str]


def small(
    seed: int = 0, *, corpus: Sequence[str] = (), learnt_tokens: int = 1600, wide: bool = False
) -> dict[str, Any]:
    """Build a small tokenizer's `tokenizer.json`; another seed gives the same texts other ids.

    It learns from the lines of this folder's corpus, or of another one, and never splits the label texts;
    with `wide` there are enough of these for choices of 1,000 options.
    """
    trained, merges = _train(corpus or CORPUS.read_text(encoding="utf-8").splitlines(), learnt_tokens)
    for label in labels(wide=wide):
        merges += _missing_merges(label, merges)
        if _has_spaced_variant(label):
            merges += _missing_merges("▁" + label, merges)
    learnt = list(dict.fromkeys([*trained, *(left + right for left, right in merges)]))
    if seed:
        random.Random(seed).shuffle(learnt)  # noqa: S311 seeded on purpose

    control = [CONTROL.get(i, f"<unused{i - 6}>") for i in range(LAST_CONTROL + 1)]
    newlines, spaces, tabs = _runs("\n"), _runs("▁"), _runs("\t")
    tags = [f"<{slash}{name}>" for slash in ("", "/") for name in _HTML.split()]
    media = list(MEDIA.values())
    texts = [*control, *newlines, *spaces[1:], *tags, *(f"<0x{byte:02X}>" for byte in range(256))]
    texts += [text for text in learnt if text not in spaces[1:]] + [*tabs, *media]
    vocabulary = {text: i for i, text in enumerate(texts)}
    added = [*control, *newlines, *spaces[1:], *tags, *tabs, *media]
    whitespace = [merge for runs in (newlines, spaces, tabs) for merge in _run_merges(runs)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(vocabulary[text], text) for text in added],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _opened("A", 0),
            "pair": [*_opened("A", 0), *_opened("B", 1)],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [list(merge) for merge in [*whitespace, *merges]],
        },
    }


def gemma(folder: Path) -> dict[str, Any]:
    """Read a folder's Gemma 3 `tokenizer.json` and put Gemma 4's control and media tokens at their ids."""
    file: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    wanted = CONTROL | MEDIA
    vocabulary = {wanted.get(i, text): i for text, i in file["model"]["vocab"].items() if i < GEMMA_SIZE}
    by_id = {i: text for text, i in vocabulary.items()}
    ids = {token["id"] for token in file["added_tokens"] if token["id"] < GEMMA_SIZE} | wanted.keys()
    file["model"]["vocab"] = vocabulary
    file["added_tokens"] = [_added(i, by_id[i]) for i in sorted(ids)]
    return file


def labels(*, wide: bool = False) -> list[str]:
    """List every text that the small tokenizer holds as one token: label families, then the corpus' words."""
    prose = re.findall(r"[A-Za-z]{2,}", CORPUS.read_text(encoding="utf-8"))
    lower = [pair.lower() for pair in PAIRS] if wide else []
    return list(dict.fromkeys([*LETTERS, *PAIRS, *DIGITS, *WORDS, *prose, *lower]))


def single_in_place(tokenizer: Tokenizer, candidates: Iterable[str]) -> list[str]:
    """Keep the labels that are exactly one token inside `{"q":"LABEL"}`."""
    head = tokenizer.encode('{"q":"', add_special_tokens=False).tokens
    tail = tokenizer.encode('"}', add_special_tokens=False).tokens
    return [
        label
        for label in candidates
        if tokenizer.encode(f'{{"q":"{label}"}}', add_special_tokens=False).tokens == [*head, label, *tail]
    ]


def _train(lines: Sequence[str], tokens: int) -> tuple[list[str], list[Merge]]:
    """Learn tokens and merges from a corpus: words with their space, single digits, runs of punctuation."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    pieces = Regex(r"▁?\p{L}+|\p{N}|▁?[^\p{L}\p{N}▁\s]+|▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pieces, behavior="isolated")
    printable = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=tokens, min_frequency=2, initial_alphabet=printable, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), [tuple(merge) for merge in model["merges"]]


def _missing_merges(text: str, merges: list[Merge]) -> Iterator[Merge]:
    """Yield the merges that make one token of the text.

    Appended merges rank below all others. A text that already became one token took a better one at every
    step, so a later addition never takes it apart again.
    """
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    parts = list(text)
    while known := [(ranks[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in ranks]:
        _, i = min(known)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    while len(parts) > 1:
        yield parts[0], parts[1]
        parts[:2] = [parts[0] + parts[1]]


def _has_spaced_variant(label: str) -> bool:
    """Say whether " label" is one token too: as in Gemma's vocabulary, not for digits and rare pairs."""
    return not label.isdigit() and not (label in PAIRS and label[0] in "QXZ")


def _runs(character: str) -> list[str]:
    return [character * length for length in range(1, LONGEST_RUN + 1)]


def _run_merges(runs: list[str]) -> Iterator[Merge]:
    """Yield every way to put a run together, the longest run first."""
    for length in range(len(runs), 1, -1):
        for left in range(length - 1, 0, -1):
            yield runs[left - 1], runs[length - left - 1]


def _opened(sequence: str, type_id: int) -> list[dict[str, Any]]:
    return [
        {"SpecialToken": {"id": "<bos>", "type_id": type_id}},
        {"Sequence": {"id": sequence, "type_id": type_id}},
    ]


def _added(i: int, text: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": i, "content": text, **flags, "special": text in SPECIAL}
