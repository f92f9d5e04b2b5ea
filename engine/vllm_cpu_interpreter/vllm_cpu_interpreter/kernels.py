"""Torch in the place of the vLLM kernels that Triton's interpreter is too slow for, or cannot run.

Triton's interpreter runs a kernel one program and one block at a time in Python. That is quick enough
for the bookkeeping kernels, which touch a few numbers a request, but the three log-probability kernels run
once a canvas position and two of them walk the whole vocabulary. vLLM offers a registry for exactly this: a
platform names a kernel and gives a function that takes the kernel's launch arguments.

Each function below takes the arguments of the kernel that it replaces, in order, and fills the same
output tensors: strides, sizes and launch options are in the signatures for their place only.
Written against vLLM 0.32.0, `vllm/v1/worker/gpu/sample/logprob.py`.
"""

# ruff: noqa: ARG001

from __future__ import annotations

from typing import Any

import torch

_MODULE = "vllm.v1.worker.gpu.sample.logprob"


def topk_log_softmax(
    output: torch.Tensor,
    logits: torch.Tensor,
    logits_stride: int,
    ids: torch.Tensor,
    ids_stride: int,
    count: int,
    vocab_size: int,
    **launch: Any,
) -> None:
    """Write the whole-vocabulary log-probabilities of `ids`, [rows, count], at temperature 1."""
    scores = logits.float()
    output.copy_(scores.gather(1, ids[:, :count]) - scores.logsumexp(dim=1, keepdim=True))


def ranks(
    output: torch.Tensor,
    logits: torch.Tensor,
    logits_stride: int,
    ids: torch.Tensor,
    vocab_size: int,
    **launch: Any,
) -> None:
    """Write how many logits of a row are at least that of its id, [rows]."""
    chosen = logits.gather(1, ids.long().unsqueeze(1))
    output.copy_((logits >= chosen).sum(dim=1))


def fill_logprob_token_ids(
    output_ids: torch.Tensor,
    output_ids_stride: int,
    output_mask: torch.Tensor,
    output_mask_stride: int,
    sampled_ids: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_ids_stride: int,
    request_of_row: torch.Tensor,
    asked_count: torch.Tensor,
    asked_ids: torch.Tensor,
    asked_ids_stride: int,
    **launch: Any,
) -> None:
    """Write each row's columns: the sampled id, then the ids asked for or, where none were, the top k."""
    rows, top = output_ids.shape[0], launch["NUM_TOPK"]
    output_ids[:, 0] = sampled_ids[:rows]
    output_mask[:, 0] = True
    for row, request in enumerate(request_of_row[:rows].tolist()):
        asked = int(asked_count[request])
        if not asked and not top:
            continue  # plain generation beside reads; `topk_ids` is then another tensor, of fewer rows
        ids = asked_ids[request, :asked] if asked else topk_ids[row, :top]
        output_ids[row, 1 : 1 + len(ids)] = ids
        output_mask[row, 1 : 1 + len(ids)] = True


def register() -> None:
    """Put torch in the place of the kernels: vLLM calls this in each of its processes."""
    from vllm.platforms import current_platform
    from vllm.triton_utils.dispatcher import register_kernels
    from vllm.v1.sample.ops import topk_topp_sampler

    if not current_platform.is_cpu():
        return
    register_kernels(
        {
            f"{_MODULE}._topk_log_softmax_kernel": topk_log_softmax,
            f"{_MODULE}._ranks_kernel": ranks,
            f"{_MODULE}._fill_logprob_token_ids_kernel": fill_logprob_token_ids,
        }
    )
    # A request with top_p or top_k would end the engine: the interpreter fails inside that kernel. The module
    # has a torch version of its own for machines without Triton.
    topk_topp_sampler.HAS_TRITON = False
