"""Folders that hold checkpoints without numbers: a configuration, and safetensors files of headers only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["DiffusionGemmaForBlockDiffusion"],
    "model_type": "diffusion_gemma",
    "dtype": "bfloat16",
    "canvas_length": 64,
    "text_config": {"max_position_embeddings": 8192, "vocab_size": 4656},
}
TENSORS = {"a": ("BF16", (10, 20)), "b": ("F32", (7,)), "c": ("F16", ()), "d": ("I64", (3,))}
ITEMSIZES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8}


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, Sequence[int]]]) -> None:
    """Write a file that has these tensors in its header, and nothing behind it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        count = ITEMSIZES[dtype]
        for size in shape:
            count *= size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count]}
        at += count
    data = json.dumps(header).encode()
    path.write_bytes(len(data).to_bytes(8, "little") + data)


def write_checkpoint(folder: Path, **changes: Any) -> Path:
    """Write a folder that looks right but for the changes to its configuration; None removes an entry."""
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", TENSORS)
    return folder
