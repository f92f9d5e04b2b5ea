"""A checkpoint's files: what they say, and each way in which they are not what they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from structured_server.backends import NotReady
from structured_server.backends.transformers.checkpoint import Checkpoint, find_checkpoint
from tests.inprocess.folders import TENSORS, write_checkpoint, write_safetensors


def test_a_folder_says_its_type_canvas_and_context(tmp_path: Path) -> None:
    expected = Checkpoint(tmp_path, "bfloat16", 64, 8192, (tmp_path / "model.safetensors",))
    assert expected == find_checkpoint(str(write_checkpoint(tmp_path)), None)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"dtype": None, "torch_dtype": "float16"}, "float16"),
        ({"dtype": None, "text_config": {"max_position_embeddings": 8, "dtype": "float32"}}, "float32"),
        ({"dtype": None}, "float32"),
    ],
    ids=["older name", "of the text model", "nowhere"],
)
def test_the_type_is_found_where_it_is_written(
    tmp_path: Path, changes: dict[str, object], dtype: str
) -> None:
    assert dtype == find_checkpoint(str(write_checkpoint(tmp_path, **changes)), None).dtype


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_the_size_counts_numbers_in_the_type_they_are_loaded_as(
    tmp_path: Path, dtype: str, itemsize: int
) -> None:
    checkpoint = find_checkpoint(str(write_checkpoint(tmp_path)), None)
    assert (200 + 7 + 1) * itemsize + 24 == checkpoint.bytes_as(dtype)


def test_all_files_that_an_index_names_are_counted_once(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = {"weight_map": {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write_safetensors(tmp_path / "1.safetensors", TENSORS)
    with pytest.raises(NotReady, match=r"lacks 2\.safetensors"):
        find_checkpoint(str(tmp_path), None)
    write_safetensors(tmp_path / "2.safetensors", {"c": ("F32", (5,))})
    checkpoint = find_checkpoint(str(tmp_path), None)
    assert (208 + 5) * 4 + 24 == checkpoint.bytes_as("float32")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "holds a LlamaForCausalLM"),
        ({"architectures": None, "model_type": "llama"}, "holds a model of type llama"),
        ({"text_config": None}, "config.json is not as it must be: KeyError"),
        ({"text_config": {}}, "'max_position_embeddings'"),
        ({"text_config": "none"}, "config.json is not as it must be"),
        ({"canvas_length": "wide"}, "config.json is not as it must be: ValueError"),
    ],
)
def test_another_model_is_refused_by_name(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(NotReady, match=message):
        find_checkpoint(str(write_checkpoint(tmp_path, **changes)), None)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"there is no folder .*/absent, and it is no hub id like owner/name"):
        find_checkpoint(str(tmp_path / "absent"), None)
    with pytest.raises(NotReady, match="there is no folder absent,"):
        find_checkpoint("absent", None)


OFFLINE = """
import asyncio, os, sys
os.environ["HF_HUB_OFFLINE"], os.environ["HF_HOME"] = "1", sys.argv[1]
from structured_server.backends import NotReady
from structured_server.backends.transformers.checkpoint import find_checkpoint
for revision in ("v1", None):
    try:
        print(find_checkpoint("someone/gemma", revision))
    except NotReady as error:
        print(error)
"""


def test_a_hub_id_is_read_from_the_cache_and_what_cannot_be_fetched_is_told(tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "models--someone--gemma"
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    write_checkpoint(cached / "snapshots" / "abc")
    missing, found = subprocess.run(
        [sys.executable, "-c", OFFLINE, tmp_path], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert missing.startswith("the weights of someone/gemma at revision v1 could not be fetched: Local")
    assert missing.endswith("or check the id, and set HF_TOKEN where the model is gated.")
    assert found.startswith("Checkpoint(folder=")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "holds no config.json"),
        ("config.json", b"{", "config.json cannot be read as JSON"),
        ("config.json", b"[]", "config.json must hold a JSON object"),
        ("model.safetensors", None, "lacks model.safetensors: weights must be in safetensors files"),
        ("model.safetensors", b"", "is no safetensors file"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1", "is no safetensors file"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"[]", "is no safetensors file"),
        ("model.safetensors", (10).to_bytes(8, "little") + b'{"a":[12]}', "is no safetensors file"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = write_checkpoint(tmp_path) / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(NotReady, match=message):
        find_checkpoint(str(tmp_path), None).bytes_as("float32")
