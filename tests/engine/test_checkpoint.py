"""The test checkpoint has what the other tests stand on: Gemma's anatomy, and answers worth comparing."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from string import ascii_uppercase, digits
from typing import Any

import pytest
from jinja2 import Environment
from tokenizers import Tokenizer

from tests.engine.server import (
    DEFAULT_ARGUMENTS,
    Oracle,
    build_checkpoint,
    checkpoint,
    default_checkpoint,
    require_engine,
)

PAIRS = [first + second for first in ascii_uppercase for second in ascii_uppercase]
QUESTIONS = {
    "urgent": ["yes", "no"],
    "team": ["compute", "networking", "security", "storage", "billing"],
    "severity": ["none", "minor", "major", "critical"],
}
ANSWER = '{"urgent":"yes","team":"networking","severity":"critical"}<turn|>'


@pytest.fixture(scope="module")
def folder() -> Path:
    require_engine()
    return default_checkpoint()


@pytest.fixture(scope="module")
def file(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    found: list[str] = tokenizer.encode(text, add_special_tokens=False).tokens
    return found


def test_the_same_arguments_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    build_checkpoint(tmp_path, *DEFAULT_ARGUMENTS)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_another_seed_of_the_tokenizer_gives_the_same_texts_other_ids(file: dict[str, Any]) -> None:
    other = json.loads((checkpoint("--tokenizer-seed", "1") / "tokenizer.json").read_text("utf-8"))
    mine, others = file["model"]["vocab"], other["model"]["vocab"]
    assert mine.keys() == others.keys()
    assert file["model"]["merges"] == other["model"]["merges"]
    assert sum(mine[text] != others[text] for text in mine) > 4000


def test_label_families_are_single_tokens_in_their_place(tokenizer: Tokenizer) -> None:
    for label in [
        *ascii_uppercase,
        *PAIRS,
        *digits,
        *(word for words in QUESTIONS.values() for word in words),
    ]:
        assert ['{"', "q", '":"', label, '"}'] == tokens(tokenizer, f'{{"q":"{label}"}}')


def test_most_labels_also_have_a_spaced_variant(file: dict[str, Any]) -> None:
    spaced = [pair for pair in PAIRS if "▁" + pair in file["model"]["vocab"]]
    assert 0.8 < len(spaced) / len(PAIRS) < 1


def test_three_incident_answers_and_the_turn_close_fit_a_16_token_canvas(tokenizer: Tokenizer) -> None:
    assert 14 == len(tokens(tokenizer, ANSWER))


def test_most_control_and_media_tokens_are_not_marked_special(file: dict[str, Any]) -> None:
    special = {token["content"] for token in file["added_tokens"] if token["special"]}
    assert {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"} == special
    plain = {token["content"] for token in file["added_tokens"]} - special
    assert {"<mask>", "<|channel>", "<|think|>", "<|image|>", "<unused0>", "<table>", "\n\n", "▁▁"} <= plain


def test_any_text_survives_the_tokenizer(tokenizer: Tokenizer) -> None:
    text = "Grüße, 日本 🙂\n\n  two spaces\tand a tab, <b>bold</b> 502%"
    assert text == tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids)
    assert "<0xE6>" in tokens(tokenizer, "日")


def test_the_template_trims_contents_and_stops_after_the_models_marker(folder: Path) -> None:
    environment = Environment(autoescape=False)  # noqa: S701 a prompt is no page
    template = environment.from_string((folder / "chat_template.jinja").read_text("utf-8"))
    variables = {"bos_token": "<bos>", "add_generation_prompt": True}
    messages = [
        {"role": "system", "content": " Be brief. \n"},
        {"role": "user", "content": [{"type": "text", "text": "\tHi "}]},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "A\n\nB "},
    ]
    shown = template.render(messages=messages, **variables)
    turns = ("system\nBe brief.", "user\nHi", "model\nYes?", "user\nA\n\nB")
    assert "<bos>" + "".join(f"<|turn>{turn}<turn|>\n" for turn in turns) + "<|turn>model\n" == shown


def test_answers_are_neither_certain_nor_uniform_and_carry_label_mass(
    file: dict[str, Any], tokenizer: Tokenizer, oracle: Oracle
) -> None:
    vocabulary = file["model"]["vocab"]
    prompt = tokenizer.encode("<|turn>user\nHTTP 502 after a firewall rule<turn|>\n<|turn>model\n").ids
    template = tokenizer.encode(ANSWER, add_special_tokens=False).ids
    slots = dict(zip(QUESTIONS, (3, 7, 11), strict=True))
    entropies: list[float] = []
    masses: list[float] = []
    noise = random.Random(0)
    for _ in range(12):
        canvas = [*template, 0, 0]
        for slot in slots.values():
            canvas[slot] = noise.randrange(494, 2000)
        for question, words in QUESTIONS.items():
            ids = [vocabulary[space + word] for word in words for space in ("", "▁")]
            (logprobs,) = oracle.read(prompt, canvas, [slots[question]], ids)
            weights = [math.exp(a) + math.exp(b) for a, b in zip(logprobs[::2], logprobs[1::2], strict=True)]
            shares = [weight / sum(weights) for weight in weights]
            masses.append(sum(weights))
            entropies.append(-sum(p * math.log(p) for p in shares) / math.log(len(words)))
    masses.sort()
    assert 0.01 < masses[len(masses) // 2] < 0.9
    assert min(entropies) < 0.1
    assert max(entropies) > 0.6
