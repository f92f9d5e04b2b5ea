"""What is said about files that are missing, wrong, or cannot be followed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from structured_server.errors import TokenizerError
from structured_server.tokenizer import load_tokenizer
from tests.tokenizer import folders
from tests.tokenizer.folders import edit


def message(folder: Path) -> str:
    """Load a folder that must be refused, and return why; the folder is named first."""
    with pytest.raises(TokenizerError) as error:
        load_tokenizer(str(folder))
    return error.value.message.removeprefix(f"tokenizer {folder}: ")


def test_ids_with_a_hole_of_millions_are_refused(gemma_like: Path) -> None:
    """A vocabulary is read by counting up."""
    path = gemma_like / "tokenizer.json"
    file = json.loads(path.read_bytes())
    file["model"]["vocab"]["yes"] = 1 << 30
    path.write_text(json.dumps(file), encoding="utf-8")
    assert "the vocabulary's ids have a hole of millions" in message(gemma_like)


def test_a_folder_with_no_tokenizer_is_refused(gemma_like: Path, run: Callable[[str], str]) -> None:
    """The message says which files would do."""
    (gemma_like / "tokenizer.json").unlink()
    expected = "the folder has neither tokenizer.json nor a SentencePiece .model"
    assert message(gemma_like).startswith(f"{expected}, and transformers cannot read it: ")

    without_transformers = f"""
import sys
sys.modules["transformers"] = None
from structured_server.errors import TokenizerError
from structured_server.tokenizer import load_tokenizer
try:
    load_tokenizer({str(gemma_like)!r})
except TokenizerError as error:
    print(error.message, "|", error.hint)
"""
    said = run(without_transformers)
    assert f'{expected} | install "structured-server[transformers]"' in said


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("tokenizer.json", "{", "tokenizer.json must be a JSON object with a model"),
        ("tokenizer.json", "[]", "tokenizer.json must be a JSON object with a model"),
        (
            "tokenizer.json",
            '{"added_tokens": 1, "model": {}}',
            "tokenizer.json, added_tokens: must be a list",
        ),
        ("tokenizer.json", '{"model": {"type": "None"}}', "tokenizer.json cannot be read by tokenizers"),
        ("tokenizer_config.json", "{", "tokenizer_config.json cannot be read as JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json must hold a JSON object"),
        ("tokenizer_config.json", "{}", "no chat template: it belongs in chat_template.jinja"),
        ("tokenizer_config.json", '{"chat_template": 1}', "must be a string or a list of named templates"),
        ("tokenizer_config.json", '{"chat_template": []}', 'must have a template named "default"'),
        (
            "tokenizer_config.json",
            '{"chat_template": "", "added_tokens_decoder": {"x": {"content": "a"}}}',
            "must map ids",
        ),
        (
            "tokenizer_config.json",
            '{"chat_template": "", "added_tokens_decoder": {"1": {}}}',
            'non-empty "content"',
        ),
        ("chat_template.json", "{", "chat_template.json cannot be read as JSON"),
        ("special_tokens_map.json", "1", "special_tokens_map.json must hold a JSON object"),
    ],
)
def test_a_spoilt_file_is_named(file: str, content: str, expected: str, gemma_like: Path) -> None:
    """With what would be right."""
    (gemma_like / file).write_text(content, encoding="utf-8")
    assert expected in message(gemma_like)


def test_sentencepiece_files_that_are_none_or_too_many_are_refused(tmp_path: Path) -> None:
    """A `.model` may also be a list of byte strings in base 64, or a second one."""
    folder = folders.sentencepiece_bpe(tmp_path)
    shutil.copy(folder / "tokenizer.model", folder / "other.model")
    assert "<|turn>" in load_tokenizer(str(folder)).controls
    (folder / "tokenizer.model").rename(folder / "another.model")
    assert "2 .model files and no tokenizer.json" in message(folder)
    (folder / "another.model").unlink()
    assert "<|turn>" in load_tokenizer(str(folder)).controls
    for content in (b"IQ== 0\nIg== 1\n", b"", b"\xff" * 40):
        (folder / "other.model").write_bytes(content)
        assert "other.model is no SentencePiece model" in message(folder)


def test_a_template_that_depends_on_a_message_s_text_is_found_by_the_check_at_load(gemma_like: Path) -> None:
    """Rendered probes are compared with segments, character by character."""
    template = folders.GEMMA_4_TEMPLATE.replace(
        "{{ bos_token }}", "{{ bos_token }}{{ 'X' if '{' not in messages[-1]['content'] }}"
    )
    edit(gemma_like / "tokenizer_config.json", {"chat_template": template})
    assert (
        "the chat template does not put fixed text around its messages: at character 5 it gives 'X<|turn>"
        in message(gemma_like)
    )


def test_a_template_that_refuses_some_texts_is_refused(gemma_like: Path) -> None:
    """A state must not be able to make a template raise."""
    refusal = "{{ raise_exception('no Chinese') if '北' in messages[-1]['content'] }}"
    edit(gemma_like / "tokenizer_config.json", {"chat_template": refusal + folders.GEMMA_4_TEMPLATE})
    assert "the chat template refuses a plain message: TemplateError: no Chinese" == message(gemma_like)


def test_a_tokenizer_whose_prompts_cannot_be_taken_apart_is_refused(tmp_path: Path) -> None:
    """Here a space is put before the whole text and not before its pieces."""
    folder = folders.gemma_like(tmp_path)
    path = folder / "tokenizer.json"
    file = json.loads(path.read_bytes())
    prepend = {"type": "Prepend", "prepend": "▁"}
    for token in file["added_tokens"]:
        token["normalized"] = token["content"] in ("<|turn>", "<turn|>")
    file["normalizer"] = {"type": "Sequence", "normalizers": [prepend, file["normalizer"]]}
    path.write_text(json.dumps(file), encoding="utf-8")
    assert "prompts cannot be tokenised safely with this tokenizer" in message(folder)


def test_a_source_that_is_neither_folder_nor_hub_id_is_refused(tmp_path: Path) -> None:
    """Nothing is fetched for it."""
    assert "there is no folder" in message(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "is a file" in message(tmp_path / "file")
    with pytest.raises(TokenizerError, match="no hub id like owner/name"):
        load_tokenizer("./gemma")
