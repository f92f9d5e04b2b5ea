"""The trained weights as a checkpoint of transformers' own class, which vLLM and the oracle read."""

from __future__ import annotations

from pathlib import Path

import torch
import vllm_cpu_interpreter  # noqa: F401  torchvision, which transformers imports, needs it beside a CPU torch
from net import Net
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    Gemma4VisionConfig,
)
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    DiffusionGemmaGenerationConfig,
    EntropyBoundSamplerConfig,
)

CANVAS = 64
LONGEST = 6144
PAD, EOS, BOS, TURN_CLOSE = 0, 1, 2, 106  # where tokenizer.py, like Gemma 4, has them
IMAGE_TOKENS = (94, 95, 96)  # unused entries: the class wants three


def to_transformers(net: Net) -> DiffusionGemmaForBlockDiffusion:
    """Return the class with the net's weights; its vision tower, which cannot be left out, is tiny."""
    shape = net.shape
    text = DiffusionGemmaTextConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        global_head_dim=shape.head_dim,
        num_global_key_value_heads=shape.kv_heads,
        num_experts=shape.experts,
        top_k_experts=shape.experts_used,
        moe_intermediate_size=shape.expert_width,
        sliding_window=shape.sliding_window,
        max_position_embeddings=LONGEST,
        layer_types=["sliding_attention"] * (shape.layers - 1) + ["full_attention"],
    )
    vision = Gemma4VisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        patch_size=16,
        pooling_kernel_size=3,
        position_embedding_size=32,
        default_output_length=280,
    )
    boi, eoi, image = IMAGE_TOKENS
    config = DiffusionGemmaConfig(
        text_config=text,
        vision_config=vision,
        canvas_length=CANVAS,
        boi_token_id=boi,
        eoi_token_id=eoi,
        image_token_id=image,
    )
    torch.manual_seed(0)
    model = DiffusionGemmaForBlockDiffusion(config).float()
    decoder = model.model.decoder
    missing, unexpected = decoder.load_state_dict(net.state_dict(), strict=False)
    assert not unexpected, unexpected
    assert all("self_conditioning" in name or "layer_scalar" in name for name in missing), missing
    model.tie_weights()
    return model.eval()


def save(net: Net, folder: Path) -> None:
    """Write the checkpoint's config and weights (fp16, which holds every value exactly once rounded)."""
    model = to_transformers(net)
    model.generation_config = DiffusionGemmaGenerationConfig(
        max_new_tokens=CANVAS,
        max_denoising_steps=48,
        t_min=0.4,
        t_max=0.8,
        stability_threshold=1,
        confidence_threshold=0.005,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=0.1),
        pad_token_id=PAD,
        eos_token_id=[EOS, TURN_CLOSE],
        bos_token_id=BOS,
    )
    model.half()
    model.config.dtype = "float16"
    model.save_pretrained(folder)
