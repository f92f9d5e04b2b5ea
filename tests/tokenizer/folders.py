"""Builds small tokenizer folders of each kind the package reads. Deterministic: nothing here is random."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

WORDS = (
    *(
        "yes",
        "no",
        "networking",
        "compute",
        "security",
        "storage",
        "billing",
        "none",
        "low",
        "medium",
        "high",
    ),
    *("critical", "urgent", "the", "is", "down", "user", "model", "system", "team", "alert", "and", "café"),
    *("北京", "I'm"),
)
WHITE_SPACE = ("\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "\t", "\t\t")
HTML = ("<table>", "</table>", "<td>", "</td>", "<b>", "<s>", "</s>")

GEMMA_4_TEMPLATE = """{{ bos_token }}
{%- set loop_messages = messages -%}
{%- if messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\\n' + messages[0]['content'] | trim + '<turn|>\\n' -}}
    {%- set loop_messages = messages[1:] -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\\n' + message['content'] | trim + '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|turn>model\\n' -}}
    {%- if not enable_thinking | default(false) -%}{{- '<|channel>thought\\n<channel|>' -}}{%- endif -%}
{%- endif -%}
"""
# ChatML: nothing is stripped, and a default system message stands where none is given.
CHATML_TEMPLATE = """{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou are terse.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('Unknown role: ' + message['role'] | tojson) }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
# Refuses a system message, as Gemma 2's does.
STRICT_TEMPLATE = """{{ bos_token }}{% for message in messages %}
    {%- if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
    {{- '<|turn>' + message['role'] + '\\n' + message['content'] | trim + '<turn|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}"""

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
UNKNOWN: dict[str, Any] = {"unk_token": SPECIAL["unk_token"]}
# Gemma's order; only the first four carry the `special` flag.
GEMMA_FIRST = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<mask>",
    "[multimodal]",
    *(f"<unused{i}>" for i in range(40)),
)
GEMMA_CONTROLS = (
    *("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
    *("<start_of_image>", "<image_soft_token>", "<|image|>", "<|audio|>", "<bbox>", "</bbox>", "<video>"),
)


def gemma_like(folder: Path, template: str = GEMMA_4_TEMPLATE) -> Path:
    """Write a tokenizer like Gemma's: "▁", byte fallback, white space and tags as added tokens.

    Two control tokens can also be reached by merges, which real files do not promise to rule out.
    """
    pieces = [*GEMMA_FIRST, *GEMMA_CONTROLS, *WHITE_SPACE, *HTML, *(f"<0x{byte:02X}>" for byte in range(256))]
    entries, merges = _chains([*(f"▁{word}" for word in WORDS), *WORDS, "<|turn>", "<unused7>", "▁▁"])
    tokenizer = Tokenizer(
        models.BPE(_numbered([*pieces, *entries]), merges, fuse_unk=True, byte_fallback=True, **UNKNOWN)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = {"<pad>", "<eos>", "<bos>", "<unk>"}
    listed = (*GEMMA_FIRST, *GEMMA_CONTROLS, *WHITE_SPACE, *HTML)
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=t in special) for t in listed])
    config = {**SPECIAL, "mask_token": "<mask>", "tokenizer_class": "TokenizersBackend"}
    return _write(folder, tokenizer.to_str(), {**config, "chat_template": template})


def byte_level(folder: Path, template: str = CHATML_TEMPLATE, *, ignore_merges: bool = False) -> Path:
    """Write a tokenizer like GPT-2's and Qwen's: added tokens lie outside the model's vocabulary.

    White space and a tag are numbered after control tokens, and control tokens differ in all flags.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = [
        _spelled(word) for word in (*(f" {word}" for word in WORDS), *WORDS, "\n\n", " \n", ".\n", '":"')
    ]
    entries, merges = _chains(spelled)
    vocabulary = _numbered([*alphabet, *(entry for entry in entries if entry not in alphabet)])
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken("<|endoftext|>", special=True, normalized=False),
            AddedToken("<|im_start|>", special=False, normalized=False),
            AddedToken("<|im_end|>", special=False, normalized=True),
            AddedToken("<|mask|>", special=False, normalized=False, lstrip=True),
            AddedToken("<|image_pad|>", special=False, normalized=False, rstrip=True),
            AddedToken("<tool_call>", special=False, normalized=True),
            *(AddedToken(f"<|reserved_{i}|>", special=i % 2 == 0, normalized=False) for i in range(10)),
            AddedToken("    ", special=False, normalized=False),
            AddedToken("<td>", special=False, normalized=False),
        ]
    )
    eos = {"__type": "AddedToken", "content": "<|im_end|>", "normalized": True, "special": False}
    config = {"eos_token": eos, "pad_token": "<|endoftext|>", "tokenizer_class": "TokenizersBackend"}
    return _write(folder, tokenizer.to_str(), config, template)


def unigram(folder: Path) -> Path:
    """Write a Unigram tokenizer: it reaches the control tokens in its own vocabulary, for they score best."""
    listed = ("<unk>", "<s>", "</s>", "<|turn>", "<turn|>", "<pad>")
    characters = sorted(set("".join(WORDS)) | set("<>|/▁\n{}\"'.,:-0123456789abcdefghijklmnopqrstuvwxyz"))
    pieces = [(text, 0.0) for text in listed]
    pieces += [(f"▁{word}", -5.0) for word in WORDS] + [(word, -6.0) for word in WORDS if len(word) > 1]
    pieces += [(character, -9.0) for character in characters]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=text == "<s>") for text in listed])
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    template = STRICT_TEMPLATE
    return _write(folder, tokenizer.to_str(), {**config, "tokenizer_class": "TokenizersBackend"}, template)


def sentencepiece_bpe(folder: Path) -> Path:
    """Write a SentencePiece model like Gemma's, trained here, with user-defined control symbols."""
    options = {
        "add_dummy_prefix": False,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    }
    return _sentencepiece(folder, "bpe", options, byte_fallback=True)


def sentencepiece_unigram(folder: Path) -> Path:
    """Write a SentencePiece model like T5's: a dummy prefix, NFKC, white space squeezed."""
    return _sentencepiece(folder, "unigram", {}, byte_fallback=False)


def edit(path: Path, fields: Mapping[str, object]) -> None:
    """Change fields of a JSON file; None removes one."""
    value: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    value |= fields
    path.write_text(
        json.dumps({key: each for key, each in value.items() if each is not None}), encoding="utf-8"
    )


def _sentencepiece(folder: Path, kind: str, options: Mapping[str, Any], *, byte_fallback: bool) -> Path:
    model = io.BytesIO()
    sentences = [" ".join(WORDS[i:] + WORDS[:i]) + ' {"a": 1} <x> | / .' for i in range(len(WORDS))] * 4
    controls = (
        "<mask>",
        "<|turn>",
        "<turn|>",
        "<|channel>",
        "<channel|>",
        "<unused0>",
        "<image_soft_token>",
        "<bbox>",
    )
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type=kind,
        vocab_size=480 if byte_fallback else 200,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        user_defined_symbols=[*controls, "\n", "\n\n", "<td>"],
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        minloglevel=2,
        **options,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    config = {**SPECIAL, "tokenizer_class": "TokenizersBackend", "additional_special_tokens": list(controls)}
    return _write(folder, None, config, GEMMA_4_TEMPLATE)


def _write(
    folder: Path, tokenizer: str | None, config: Mapping[str, Any], template: str | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def _numbered(entries: Iterable[str]) -> dict[str, int]:
    return {entry: i for i, entry in enumerate(dict.fromkeys(entries))}


def _chains(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the entries and merges that build each word from its left, character by character."""
    entries = sorted({character for word in words for character in word})
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        for end in range(1, len(word)):
            merges[word[:end], word[end]] = None
            entries.append(word[: end + 1])
    return list(dict.fromkeys(entries)), list(merges)


def _spelled(text: str) -> str:
    """Spell text in GPT-2's byte alphabet, as the library does."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]
