"""What a checkpoint's files say of it before anything is loaded: its class, limits and size in memory."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structured_server.backends import NotReady

MODEL_CLASS = "DiffusionGemmaForBlockDiffusion"
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""The types that weights may be computed in, with their bytes."""

_CONVERTED = ("F64", "F32", "BF16", "F16")  # while loading; other types stay as they are stored
_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_WANTED = (_CONFIG, "generation_config.json", _INDEX, "*.safetensors")
_METADATA = "__metadata__"
_LONGEST_HEADER = 100_000_000  # bytes, the format's own limit


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that holds a DiffusionGemma."""

    folder: Path
    dtype: str  # that the weights were saved in
    canvas: int | None  # the widest that it was made for, in tokens
    max_model_len: int
    weights: tuple[Path, ...]

    def bytes_as(self, dtype: str) -> int:
        """Return how many bytes the weights take in a type.

        Raises:
            NotReady: a file cannot be read.
        """
        return sum(_bytes_as(path, DTYPES[dtype]) for path in self.weights)


def find_checkpoint(source: str, revision: str | None) -> Checkpoint:
    """Return the checkpoint of a folder, or of a hub id whose files are fetched unless cached.

    Raises:
        NotReady: there is none, or it is not a whole DiffusionGemma.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return read_checkpoint(path)
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") != 1:
        raise NotReady(f"there is no folder {source}, and it is no hub id like owner/name.")
    return read_checkpoint(_fetch(source, revision))


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder's configuration and find its weights.

    Raises:
        NotReady: it holds another model, or files are missing.
    """
    config = _read_object(folder / _CONFIG)
    _check_class(folder, config)
    weights = _find_weights(folder)
    try:
        text = config["text_config"]
        return Checkpoint(
            folder=folder,
            dtype=str(config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or "float32"),
            canvas=None if config.get("canvas_length") is None else int(config["canvas_length"]),
            max_model_len=int(text["max_position_embeddings"]),
            weights=weights,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotReady(f"{folder / _CONFIG} is not as it must be: {type(error).__name__}: {error}.") from None


def _check_class(folder: Path, config: dict[str, Any]) -> None:
    named = config.get("architectures") or []
    kind = config.get("model_type")
    if MODEL_CLASS in named or (not named and kind == "diffusion_gemma"):
        return
    what = " or ".join(map(str, named)) or f"model of type {kind}"
    raise NotReady(f"{folder} holds a {what}; this backend serves {MODEL_CLASS} only.")


def _find_weights(folder: Path) -> tuple[Path, ...]:
    if (folder / _INDEX).is_file():
        names = sorted(set(map(str, _read_object(folder / _INDEX).get("weight_map", {}).values())))
    else:
        names = [_SINGLE]
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise NotReady(f"{folder} lacks {', '.join(missing[:3])}: weights must be in safetensors files.")
    return tuple(folder / name for name in names)


def _bytes_as(path: Path, itemsize: int) -> int:
    """Add up a file's tensors from its header: a length in 8 bytes, then JSON."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _LONGEST_HEADER)))
        sizes = [_tensor_bytes(each, itemsize) for name, each in header.items() if name != _METADATA]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReady(f"{path} is no safetensors file ({type(error).__name__}).") from None
    return sum(sizes)


def _tensor_bytes(tensor: dict[str, Any], itemsize: int) -> int:
    if tensor["dtype"] in _CONVERTED:
        return itemsize * int(math.prod(tensor["shape"]))
    begin, end = tensor["data_offsets"]
    return int(end) - int(begin)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NotReady(f"{path.parent} holds no {path.name}: give the folder of a model.") from None
    except (OSError, ValueError) as error:
        raise NotReady(f"{path} cannot be read as JSON: {type(error).__name__}.") from None
    if not isinstance(value, dict):
        raise NotReady(f"{path} must hold a JSON object.")
    return value


def _fetch(hub_id: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # not needed for folders

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(_WANTED)))
    except Exception as error:  # HTTP, cache, validation, disk and offline errors share no base class
        at = f" at revision {revision}" if revision else ""
        first = (str(error).strip().splitlines() or [""])[0]
        raise NotReady(
            f"the weights of {hub_id}{at} could not be fetched: {type(error).__name__}: {first[:300]} "
            "Give a folder that holds them; or check the id, and set HF_TOKEN where the model is gated."
        ) from None
