"""DiffusionGemma's text model as one small module, for training and export.

It computes what transformers' `DiffusionGemmaForBlockDiffusion` computes on a first denoise step (a test
holds the two against each other), with three differences that cost nothing in numbers: all experts are
computed densely and weighted by the router, a prefix that many prompts share is encoded once, and masks come
from positions. Parameters carry the names of the class's decoder, so weights move between the two by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-6


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. Every layer but the last has sliding attention; the last attends to everything."""

    vocabulary: int
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 3
    head_dim: int = 32
    feed_forward: int = 384
    experts: int = 4
    experts_used: int = 2
    expert_width: int = 64
    sliding_window: int = 1024
    softcap: float = 30.0

    def sliding(self, layer: int) -> bool:
        """Whether a layer has sliding attention."""
        return layer < self.layers - 1


class Norm(nn.Module):
    """Root mean square normalisation."""

    def __init__(self, size: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)
        return x if self.weight is None else x * self.weight


class Attention(nn.Module):
    """Attention over keys and values that the caller puts together. Full layers reuse keys as values."""

    def __init__(self, shape: Shape, *, sliding: bool) -> None:
        super().__init__()
        self.shape = shape
        width = shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden, width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, width, bias=False) if sliding else None
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.q_norm = Norm(shape.head_dim)
        self.k_norm = Norm(shape.head_dim)
        self.v_norm = Norm(shape.head_dim, scaled=False)

    def keys_values(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [batch, kv_heads, tokens, head_dim]."""
        split = (*x.shape[:2], self.shape.kv_heads, self.shape.head_dim)
        k = self.k_proj(x).view(split)
        v = k if self.v_proj is None else self.v_proj(x).view(split)
        return rotate(self.k_norm(k), rotation).transpose(1, 2), self.v_norm(v).transpose(1, 2)

    def forward(
        self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Attend from x to k and v where the mask [batch or 1, 1, tokens, keys] is true."""
        shape = self.shape
        q = self.q_proj(x).view(*x.shape[:2], shape.heads, shape.head_dim)
        q = rotate(self.q_norm(q), rotation).transpose(1, 2)
        groups = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        return self.o_proj(attended.transpose(1, 2).reshape(*x.shape[:2], -1))


class FeedForward(nn.Module):
    """The gated feed-forward block that every token passes."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down_proj = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token."""
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Router(nn.Module):
    """Weights of the experts for each token: the best few, normalised; the others are 0."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.used = shape.experts_used
        self.norm = Norm(shape.hidden, scaled=False)
        self.proj = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.scale = nn.Parameter(torch.ones(shape.hidden))
        self.per_expert_scale = nn.Parameter(torch.ones(shape.experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, experts]."""
        weights = self.proj(self.norm(x) * self.scale * x.shape[-1] ** -0.5).softmax(-1)
        least = weights.topk(self.used, -1).values[..., -1:]
        weights = torch.where(weights >= least, weights, torch.zeros_like(weights))
        return weights / weights.sum(-1, keepdim=True) * self.per_expert_scale


class Experts(nn.Module):
    """All experts, computed densely."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        size = (shape.experts, 2 * shape.expert_width, shape.hidden)
        self.gate_up_proj = nn.Parameter(torch.empty(size))
        self.down_proj = nn.Parameter(torch.empty(shape.experts, shape.hidden, shape.expert_width))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the experts' outputs."""
        experts, width, hidden = self.gate_up_proj.shape
        both = F.linear(x, self.gate_up_proj.reshape(experts * width, hidden))
        gate, up = both.view(*x.shape[:2], experts, 2, width // 2).unbind(-2)
        inner = F.gelu(gate, approximate="tanh") * up * weights[..., None]
        return F.linear(inner.flatten(-2), self.down_proj.permute(1, 0, 2).reshape(hidden, -1))


class Layer(nn.Module):
    """One layer; the prompt and the canvas share its weights."""

    def __init__(self, shape: Shape, *, sliding: bool) -> None:
        super().__init__()
        self.self_attn = Attention(shape, sliding=sliding)
        self.mlp = FeedForward(shape)
        self.router = Router(shape)
        self.experts = Experts(shape)
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
            "pre_feedforward_layernorm_2",
        ):
            setattr(self, name, Norm(shape.hidden))

    def forward(
        self, x: Tensor, past_k: Tensor, past_v: Tensor, mask: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens' new states and their own keys and values."""
        normed = self.input_layernorm(x)
        k, v = self.self_attn.keys_values(normed, rotation)
        attended = self.self_attn(
            normed, torch.cat((past_k, k), 2), torch.cat((past_v, v), 2), mask, rotation
        )
        x = x + self.post_attention_layernorm(attended)
        dense = self.post_feedforward_layernorm_1(self.mlp(self.pre_feedforward_layernorm(x)))
        sparse = self.experts(self.pre_feedforward_layernorm_2(x), self.router(x))
        sparse = self.post_feedforward_layernorm_2(sparse)
        return x + self.post_feedforward_layernorm(dense + sparse), k, v


class Net(nn.Module):
    """The model. Prompts extend keys and values causally; canvases read them and each other's tokens freely.

    Keys and values of a prompt are one tensor [layers, 2, batch, kv_heads, tokens, head_dim].
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, sliding=shape.sliding(i)) for i in range(shape.layers))
        self.norm = Norm(shape.hidden)
        half = shape.head_dim // 2
        exponents = torch.arange(half, dtype=torch.float32) / half
        turning = half // 4  # a full layer's rotation turns a quarter of its dimensions
        full = torch.where(torch.arange(half) < turning, 1e6**-exponents, torch.zeros(()))
        self.register_buffer("frequencies", torch.stack((10_000.0**-exponents, full)), persistent=False)

    def empty(self, batch: int = 1) -> Tensor:
        """Return keys and values of an empty prompt."""
        shape = self.shape
        return torch.zeros(shape.layers, 2, batch, shape.kv_heads, 0, shape.head_dim)

    def encode(
        self, ids: Tensor, positions: Tensor, past: Tensor, past_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values of prompt tokens [batch, tokens] that follow `past`, and their final states.

        A position below 0 is padding: nothing attends to it.
        """
        x = self.embed_tokens(ids) * math.sqrt(self.shape.hidden)
        later = positions[:, :, None] >= torch.cat((past_positions, positions), 1)[:, None]
        x, new = self._run(x, positions, past, past_positions, later | (positions < 0)[:, :, None])
        return new, self.norm(x)

    def read(self, canvas: Tensor, positions: Tensor, past: Tensor, past_positions: Tensor) -> Tensor:
        """Return final states [batch, width, hidden] of canvases that follow the prompts in `past`."""
        x = self.embed_tokens(canvas) * math.sqrt(self.shape.hidden)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)  # self-conditioning without a signal
        everything = torch.ones(1, 1, 1, dtype=torch.bool)
        return self.norm(self._run(x, positions, past, past_positions, everything)[0])

    def logits(self, states: Tensor) -> Tensor:
        """Return soft-capped logits over the vocabulary."""
        logits = states @ self.embed_tokens.weight.T
        return torch.tanh(logits / self.shape.softcap) * self.shape.softcap

    def _run(
        self, x: Tensor, positions: Tensor, past: Tensor, past_positions: Tensor, allowed: Tensor
    ) -> tuple[Tensor, Tensor]:
        key_positions = torch.cat((past_positions, positions), 1)[:, None, None]
        full = allowed[:, None] & (key_positions >= 0)
        near = full & (positions[:, None, :, None] - key_positions < self.shape.sliding_window)
        rotations = [_rotation(positions, frequencies) for frequencies in self.frequencies]
        new = []
        for index, layer in enumerate(self.layers):
            sliding = self.shape.sliding(index)
            x, k, v = layer(
                x, past[index, 0], past[index, 1], near if sliding else full, rotations[not sliding]
            )
            new.append(torch.stack((k, v)))
        return x, torch.stack(new)


def _rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [batch, tokens, 1, head_dim]."""
    angles = positions[..., None].float() * frequencies
    angles = torch.cat((angles, angles), -1)[:, :, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn [batch, tokens, heads, head_dim] by the tokens' positions."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * rotation[0] + turned * rotation[1]


def round_to_fp16(net: Net) -> None:
    """Round every weight to a value that fp16 can hold, so that all engines compute with the same."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter.half().float())
