"""Folders and hub ids: what is read of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from structured_server.core.tokens import Kind, Segment
from structured_server.errors import TokenizerError
from structured_server.tokenizer import load_tokenizer
from tests.tokenizer import folders
from tests.tokenizer.folders import edit


@pytest.mark.parametrize("form", ["jinja", "json", "string", "list"])
def test_a_chat_template_is_found_in_each_of_its_places(form: str, gemma_like: Path) -> None:
    """A file of its own, another's field, or the configuration, plainly or in a list."""
    other = "{{ raise_exception('not this one') }}"
    config = gemma_like / "tokenizer_config.json"
    template = json.loads(config.read_bytes())["chat_template"]
    if form == "jinja":
        edit(config, {"chat_template": other})
        edit(gemma_like / "chat_template.json", {"chat_template": other})
        (gemma_like / "chat_template.jinja").write_text(template, encoding="utf-8")
    elif form == "json":
        edit(config, {"chat_template": other})
        edit(gemma_like / "chat_template.json", {"chat_template": template})
    elif form == "list":
        named = [{"name": "tool_use", "template": other}, {"name": "default", "template": template}]
        edit(config, {"chat_template": named})
    assert "<bos><|turn>user\n" == load_tokenizer(str(gemma_like)).chat.start_user


def test_special_tokens_may_be_strings_objects_or_in_their_own_file(gemma_like: Path) -> None:
    """All three are found in the wild."""
    expected = load_tokenizer(str(gemma_like))
    config = gemma_like / "tokenizer_config.json"
    bos = {"__type": "AddedToken", "content": "<bos>"}
    edit(config, {"eos_token": None, "mask_token": {"content": "<mask>"}, "bos_token": bos})
    edit(gemma_like / "special_tokens_map.json", {"eos_token": {"content": "<eos>"}, "bos_token": "<wrong>"})
    loaded = load_tokenizer(str(gemma_like))
    assert (expected.padding, expected.mask, expected.chat) == (loaded.padding, loaded.mask, loaded.chat)


def test_padding_is_the_padding_token_where_there_is_no_end_of_sequence(gemma_like: Path) -> None:
    """And neither is an error."""
    config = gemma_like / "tokenizer_config.json"
    edit(config, {"eos_token": None})
    assert "<pad>" == load_tokenizer(str(gemma_like)).token_text(load_tokenizer(str(gemma_like)).padding)
    edit(config, {"pad_token": "<not in the vocabulary>"})
    with pytest.raises(TokenizerError, match=r"must name an eos_token \(or else a pad_token\)"):
        load_tokenizer(str(gemma_like))


def test_a_token_that_the_configuration_names_is_a_control_token(gemma_like: Path) -> None:
    """Even a tag or a word, and even where the list of added tokens lacks it."""
    config = gemma_like / "tokenizer_config.json"
    before = load_tokenizer(str(gemma_like))
    table, word = (before.encode(text)[0] for text in ("<table>", "networking"))
    assert table not in before.control_ids
    named = {"additional_special_tokens": ["<table>"], "extra_special_tokens": {"image_token": "networking"}}
    edit(config, named)
    after = load_tokenizer(str(gemma_like))
    assert {table, word} <= after.control_ids
    assert after.control_ids.isdisjoint(after.encode("<table> the networking"))


def test_added_tokens_of_the_configuration_count(gemma_like: Path, tmp_path: Path) -> None:
    """Older folders list some only there; transformers adds them."""
    new = {"content": "<|new|>", "special": False, "normalized": False}
    config = gemma_like / "tokenizer_config.json"
    largest = load_tokenizer(str(gemma_like)).vocabulary_size
    edit(config, {"added_tokens_decoder": {str(largest): new}})
    tokenizer = load_tokenizer(str(gemma_like))
    assert largest in tokenizer.control_ids
    assert largest + 1 == tokenizer.vocabulary_size
    assert (largest,) == tokenizer.encode_prompt([Segment(Kind.CONTROL, "<|new|>")])

    spm = folders.sentencepiece_bpe(tmp_path / "spm")
    size = load_tokenizer(str(spm)).vocabulary_size
    added = {str(size): new, "4": {"content": "<mask>"}}
    edit(spm / "tokenizer_config.json", {"added_tokens_decoder": added})
    tokenizer = load_tokenizer(str(spm))
    assert size in tokenizer.control_ids
    assert size + 1 == tokenizer.vocabulary_size
    assert (size,) == tokenizer.encode_prompt([Segment(Kind.CONTROL, "<|new|>")])
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode("<|new|>"))
    assert "<|new|>" == tokenizer.token_text(size)


def test_a_file_whose_model_does_not_come_last_is_read_all_the_same(gemma_like: Path) -> None:
    """The library's order is used, not relied upon."""
    path = gemma_like / "tokenizer.json"
    expected = load_tokenizer(str(gemma_like))
    file = json.loads(path.read_bytes())
    path.write_text(json.dumps({"model": file.pop("model"), **file}), encoding="utf-8")
    loaded = load_tokenizer(str(gemma_like))
    assert expected.encode("yes <td>\n\n<|turn> café") == loaded.encode("yes <td>\n\n<|turn> café")
    assert expected.control_ids == loaded.control_ids


def test_a_nested_model_is_not_taken_for_the_model(gemma_like: Path) -> None:
    """Only the key of the whole object counts."""
    path = gemma_like / "tokenizer.json"
    file = json.loads(path.read_bytes())
    path.write_text(json.dumps({"notes": {"model": {"of": 1}}, **file}), encoding="utf-8")
    assert "<turn|>" in load_tokenizer(str(gemma_like)).controls


def test_truncation_and_padding_in_the_file_are_ignored(gemma_like: Path) -> None:
    """They are left over from training, and would cut states."""
    path = gemma_like / "tokenizer.json"
    library = Tokenizer.from_file(str(path))
    library.enable_truncation(4)
    library.enable_padding(length=9)
    library.save(str(path))
    loaded = load_tokenizer(str(gemma_like))
    for encode in (loaded.encode, loaded.encode_like_engine):
        assert 1 == len(encode("yes"))
        assert 20 == len(encode(" yes" * 20))


def test_a_folder_with_neither_model_file_is_read_by_transformers(tmp_path: Path) -> None:
    """GPT-2's own pair of files, for one."""
    source = folders.byte_level(tmp_path / "source")
    library = Tokenizer.from_file(str(source / "tokenizer.json"))
    folder = tmp_path / "folder"
    folder.mkdir()
    library.model.save(str(folder))
    shutil.copy(source / "chat_template.jinja", folder)
    added = {entry["id"]: entry for entry in json.loads(library.to_str())["added_tokens"]}
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>", "added_tokens_decoder": added}
    edit(folder / "tokenizer_config.json", config)
    text = "yes the network <|im_start|> café\n\n"
    assert load_tokenizer(str(source)).encode(text) == load_tokenizer(str(folder)).encode(text)


OFFLINE = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = {home!r}
from structured_server.errors import TokenizerError
from structured_server.tokenizer import load_tokenizer
try:
    print(load_tokenizer("owner/name", revision={revision!r}).token_text({token}))
except TokenizerError as error:
    print(error.message, "|", error.hint)
"""


def test_a_hub_id_is_read_from_the_cache_offline(
    gemma_like: Path, tmp_path: Path, run: Callable[[str], str]
) -> None:
    """What is cached is used, and what is not is an error that says what to do."""
    commit = "0123456789" * 4
    repository = tmp_path / "home" / "hub" / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(gemma_like, repository / "snapshots" / commit)

    def load(revision: str | None) -> str:
        return run(OFFLINE.format(home=str(tmp_path / "home"), revision=revision, token=4))

    assert "<mask>\n" == load(None)
    missing = load("v2")
    assert missing.startswith("the tokenizer of 'owner/name' at revision 'v2' could not be fetched: ")
    assert "HF_HUB_OFFLINE" in missing


def test_the_fingerprint_changes_with_all_that_decides_prompts_and_nothing_else(gemma_like: Path) -> None:
    """The same files anywhere have the same one."""
    original = load_tokenizer(str(gemma_like)).fingerprint
    assert 16 == len(original)
    assert set(original) <= set("0123456789abcdef")
    copy = Path(shutil.copytree(gemma_like, gemma_like.with_name("copy")))
    edit(copy / "tokenizer_config.json", {"model_max_length": 7})
    assert original == load_tokenizer(str(copy)).fingerprint

    path = copy / "tokenizer_config.json"
    config = json.loads(path.read_bytes())
    changes: list[Callable[[], object]] = [
        lambda: edit(path, {"chat_template": config["chat_template"] + "\n{# #}"}),
        lambda: edit(path, {"image_token": "<bbox>"}),
        lambda: (copy / "tokenizer.json").write_bytes((copy / "tokenizer.json").read_bytes() + b"\n"),
    ]
    seen = {original}
    for change in changes:
        change()
        seen.add(load_tokenizer(str(copy)).fingerprint)
    assert 1 + len(changes) == len(seen)


def test_importing_the_package_loads_none_of_the_heavy_libraries(run: Callable[[str], str]) -> None:
    """The port must answer while the tokenizer loads."""
    heavy = "{'transformers', 'torch', 'numpy', 'huggingface_hub', 'sentencepiece'}"
    program = f"import sys, structured_server.tokenizer; print(sorted({heavy} & sys.modules.keys()))"
    assert "[]\n" == run(program)
