"""DiffusionGemma in memory: the only module that calls torch and transformers.

Both are imported by `import_packages`, never by importing this module, and no exception of theirs leaves it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

from structured_server.backends import NotReady
from structured_server.backends.transformers.batching import WorkerLost
from structured_server.backends.transformers.checkpoint import MODEL_CLASS, Checkpoint
from structured_server.backends.transformers.prompts import PromptStore
from structured_server.core.reads import Read, ReadRequest, Row
from structured_server.errors import UpstreamFailed

ENCODED_AT_ONCE = 2048
"""Prompt tokens in one step: the attention mask of a step has this many rows of the whole prompt's length."""

LOGITS_AT_ONCE = 64
"""Slots whose logits exist at the same time: 64 rows of 262,144 numbers are 64 MiB."""

KEPT_TOKENS = 8192
"""Prompt tokens whose keys and values are kept for later reads of the same prompts."""

INSTALL = 'pip install "structured-server[transformers]"'
_MEMORY_WORDS = ("out of memory", "not enough memory", "can't allocate memory", "STATUS_ALLOC_FAILED")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Packages:
    """What is used of torch and transformers. Their types are not known where they are not installed."""

    torch: Any
    network: Any  # the class DiffusionGemmaForBlockDiffusion
    cache: Any  # the class DynamicCache


def import_packages() -> Packages:
    """Import torch and transformers, and send what transformers logs where all log lines go.

    Raises:
        NotReady: one is missing, broken, or too old.
    """
    torch = _import("torch")
    transformers = _import("transformers")
    transformers.logging.disable_progress_bar()
    transformers.logging.disable_default_handler()
    transformers.logging.enable_propagation()
    try:
        return Packages(torch, getattr(transformers, MODEL_CLASS), transformers.DynamicCache)
    except AttributeError:
        raise NotReady(
            f"transformers {transformers.__version__} has no {MODEL_CLASS}: {INSTALL} --upgrade."
        ) from None
    except Exception as error:  # its lazy imports raise whatever a broken package does
        raise NotReady(f"transformers cannot import {MODEL_CLASS}: {_first_line(error)}") from None


def choose_device(torch: Any, name: str) -> Any:
    """Return the torch device of a name; `auto` is the first GPU, or else the CPU.

    Raises:
        NotReady: there is no such GPU, or what loads onto one is missing.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    index = int(name.partition(":")[2] or 0)
    count = torch.cuda.device_count()
    if index >= count:
        raise NotReady(
            f"torch {torch.__version__} sees {count} CUDA devices and --device is {name}: "
            "check the driver and that torch is a CUDA build, or use --device cpu."
        )
    if find_spec("accelerate") is None:
        raise NotReady(f"loading onto a GPU needs accelerate, which is not installed: {INSTALL}.")
    return torch.device("cuda", index)


class Model:
    """A loaded DiffusionGemma. Its reads must all be made in one thread.

    What was computed for a prompt, its keys and values, is kept for later reads and never changed by one.
    """

    def __init__(
        self,
        packages: Packages,
        network: Any,
        device: Any,
        *,
        kept_tokens: int = KEPT_TOKENS,
        encoded_at_once: int = ENCODED_AT_ONCE,
    ) -> None:
        self._torch = packages.torch
        self._new_cache = packages.cache
        self._network = network
        self._text = network.config.get_text_config(decoder=True)
        self._device = device
        self._prompts = PromptStore[Any](kept_tokens)
        self._encoded_at_once = encoded_at_once
        parameters = signature(network.model.decoder.forward).parameters
        # Renamed between transformers 5.19 and 5.24; from 5.40 on the old name is not taken.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"

    @classmethod
    def load(cls, packages: Packages, checkpoint: Checkpoint, device: Any, dtype: str) -> Model:
        """Load a checkpoint onto a device.

        Raises:
            NotReady: it does not fit or lacks weights, or transformers cannot load it.
        """
        place = {} if device.type == "cpu" else {"device_map": {"": device}}
        try:
            network, report = packages.network.from_pretrained(
                checkpoint.folder,
                dtype=getattr(packages.torch, dtype),
                attn_implementation="sdpa",  # the one that takes masks of booleans
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **place,
            )
        except Exception as error:  # whatever a broken checkpoint makes of it
            if _is_out_of_memory(packages.torch, error):
                problem = f"{device} ran out of memory while {checkpoint.folder} was loaded."
            else:
                problem = f"{checkpoint.folder} cannot be loaded: {_first_line(error)}"
        else:
            problem = ""
        if problem:  # raised here, where no exception holds what was loaded so far
            raise NotReady(problem)
        # transformers goes on with random numbers in their place; what sees images is never run.
        if lacking := sorted(name for name in report["missing_keys"] if "vision" not in name):
            raise NotReady(f"{checkpoint.folder} lacks {len(lacking)} of the weights, such as {lacking[0]}.")
        return cls(packages, network.eval(), device)

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest token id that it knows."""
        size: int = self._text.vocab_size
        return size

    def read(self, requests: Sequence[ReadRequest]) -> list[Read]:
        """Denoise canvases of one width behind one prompt, as one batch.

        The prompt's tokens count as cached in every read but the one that they were encoded for.

        Raises:
            UpstreamFailed: the model failed on them.
            WorkerLost: the device failed, so that it can read nothing any more.
        """
        try:
            with self._torch.inference_mode():
                return self._read(requests)
        except Exception as error:  # torch has no base class of its own
            failure = self._explain(error, requests)
        # Here the failed read's tensors are no longer held by its exception.
        if isinstance(failure, UpstreamFailed):
            self._free_memory()
        raise failure

    def _read(self, requests: Sequence[ReadRequest]) -> list[Read]:
        prompt = requests[0].prompt.ids
        cache, fresh = self._encode(prompt)
        hidden = self._denoise(cache, len(prompt), [request.canvas for request in requests])
        rows = iter(self._rows(hidden, requests))
        return [
            Read(
                tuple(next(rows) for _ in request.positions),
                len(prompt),
                0 if fresh and number == 0 else len(prompt),
            )
            for number, request in enumerate(requests)
        ]

    def _encode(self, prompt: tuple[int, ...]) -> tuple[Any, bool]:
        """Return a prompt's keys and values, and whether they had to be computed."""
        cache = self._prompts.get(prompt)
        if cache is not None:
            return cache, False
        self._prompts.make_room(len(prompt))  # before the new one takes memory
        cache = self._new_cache(config=self._text)
        for part in self._ids([prompt]).split(self._encoded_at_once, dim=1):
            self._network.model.encoder(input_ids=part, **{self._cache_argument: cache})
        self._prompts.put(prompt, cache)
        return cache, True

    def _denoise(self, cache: Any, prompt: int, canvases: Sequence[tuple[int, ...]]) -> Any:
        """Return the last hidden states of one step, [canvases, width, hidden size]."""
        width = len(canvases[0])
        positions = self._torch.arange(prompt, prompt + width, device=self._device)[None]
        decoded = self._network.model.decoder(
            decoder_input_ids=self._ids(canvases),
            decoder_attention_mask={
                "full_attention": None,
                "sliding_attention": self._sliding_mask(prompt, width),
            },
            decoder_position_ids=positions,
            **{self._cache_argument: _repeated(cache, len(canvases))},
        )
        return decoded.last_hidden_state

    def _sliding_mask(self, prompt: int, width: int) -> Any:
        """Say which keys a canvas position sees in a sliding layer, [1, 1, width, kept + width]; None: all.

        It sees the canvas to its right whole, and to its left as many keys as the window holds with itself.
        transformers' own mask would let it see all that the cache has kept.
        """
        window = self._text.sliding_window
        kept = min(prompt, window - 1)
        if kept + width <= window:
            return None
        keys = self._torch.arange(kept + width, device=self._device)
        return (keys[kept:, None] - keys < window)[None, None]

    def _rows(self, hidden: Any, requests: Sequence[ReadRequest]) -> list[Row]:
        """Return the rows of all slots, canvas after canvas. No other position gets logits."""
        slots = [
            (canvas, position) for canvas, request in enumerate(requests) for position in request.positions
        ]
        wanted = sorted({label for request in requests for label in request.label_ids})
        picked = self._torch.tensor(wanted, device=self._device)
        values: list[list[float]] = []
        tops: list[int] = []
        for part in hidden[tuple(zip(*slots, strict=True))].split(LOGITS_AT_ONCE):
            logits = self._network.lm_head(part).float()
            if cap := self._text.final_logit_softcapping:
                logits = cap * (logits / cap).tanh()
            values += (logits[:, picked] - logits.logsumexp(-1, keepdim=True)).tolist()
            tops += logits.argmax(-1).tolist()
        return [Row(dict(zip(wanted, row, strict=True)), top) for row, top in zip(values, tops, strict=True)]

    def _ids(self, rows: Sequence[Sequence[int]]) -> Any:
        return self._torch.tensor(rows, device=self._device)

    def _explain(self, error: Exception, requests: Sequence[ReadRequest]) -> UpstreamFailed | WorkerLost:
        """Turn what torch raised into an error that says what to do."""
        if _is_out_of_memory(self._torch, error):
            return UpstreamFailed(
                f"{self._device} ran out of memory on {len(requests)} canvases of {requests[0].width} tokens"
                f" and a prompt of {len(requests[0].prompt.ids)}: lower --max-positions."
            )
        log.error("a read failed", exc_info=error)
        if isinstance(error, getattr(self._torch, "AcceleratorError", ())):
            return WorkerLost(f"{self._device} failed ({_first_line(error)}): the server must be restarted.")
        return UpstreamFailed(f"the model failed on the read with {type(error).__name__}.")

    def _free_memory(self) -> None:
        self._prompts.clear()
        if self._device.type == "cuda":
            self._torch.cuda.empty_cache()


def _repeated(cache: Any, times: int) -> Any:
    """Return a prompt's cache for so many canvases; the given one stays as it is."""
    if times == 1:
        return cache  # the decoder only reads it
    wide = copy(cache)
    wide.layers = [copy(layer) for layer in cache.layers]
    wide.batch_repeat_interleave(times)
    return wide


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise NotReady(f"{error.name} is not installed: {INSTALL}.") from None
    except Exception as error:  # a broken build raises OSError and more
        raise NotReady(f"{name} cannot be imported: {_first_line(error)}") from None


def _is_out_of_memory(torch: Any, error: Exception) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    # On the CPU, and inside of cuBLAS, it is a plain RuntimeError.
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MEMORY_WORDS)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else f"{type(error).__name__}."
