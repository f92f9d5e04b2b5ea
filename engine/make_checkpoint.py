"""Write a small DiffusionGemma checkpoint with random weights, for tests: real classes, no knowledge.

    .engine/venv/bin/python engine/make_checkpoint.py OUT [--sliding-window 128] [--canvas 64] [--seed 0]
                                                         [--tokenizer-seed 0 | --gemma-tokenizer DIR]
                                                         [--images]

The same arguments give the same bytes. Runs in the environment that engine/setup.sh makes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

import make_tokenizer
import torch
import vllm_cpu_interpreter  # noqa: F401  torchvision, which transformers imports, needs it beside a CPU torch
from tokenizers import Tokenizer
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

HIDDEN = 64
EMBEDDING_STD = 0.4
IMAGE_TOKENS = 70  # at most, an image; Gemma 4's image processor takes no smaller number
PATCH = 4  # pixels a side
POOLED = 2  # patches a side that become one token
SEEING = {
    "patch_size": PATCH,
    "pooling_kernel_size": POOLED,
    "default_output_length": IMAGE_TOKENS,
    "position_embedding_size": IMAGE_TOKENS * POOLED,  # patches in a row, of the longest strip
}
# A tower that never runs, yet transformers builds one whenever it builds the model.
BLIND = {"position_embedding_size": 64}
MEDIA_TOKENS = {
    "boi_token": "<|image>",
    "image_token": "<|image|>",
    "eoi_token": "<image|>",
    "boa_token": "<|audio>",
    "audio_token": "<|audio|>",
    "eoa_token": "<audio|>",
}
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
INCIDENT = '{"urgent":"yes","team":"networking","severity":"critical"}<turn|>'

TEAMS = ["compute", "networking", "security", "storage", "billing"]
SEVERITIES = ["none", "minor", "major", "critical"]

# What the model leans to where the canvas holds noise, so that label mass is a share worth testing.
FAVOURED = ["yes", "no", *TEAMS, *SEVERITIES]
NEUTRAL = [*make_tokenizer.LETTERS, *make_tokenizer.DIGITS, *make_tokenizer.WORDS]


def main() -> None:
    """Build the tokenizer and the model, check both, and write the folder."""
    arguments = _arguments()
    out: Path = arguments.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    if arguments.gemma_tokenizer:
        tokenizer = make_tokenizer.gemma(arguments.gemma_tokenizer)
    else:
        tokenizer = make_tokenizer.small(arguments.tokenizer_seed, wide=True)
    single = _check_tokenizer(tokenizer)
    _write_tokenizer(tokenizer, out)
    if arguments.images:
        _write_processor(out)

    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    model = _model(vocabulary, arguments)
    model.save_pretrained(out)
    parameters = sum(weight.numel() for weight in model.parameters())
    print(f"{out}: {len(vocabulary)} tokens, {single} labels single in their place, {parameters} parameters")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write; replaced if it exists")
    parser.add_argument("--sliding-window", type=int, default=1024, help="in tokens, default 1024")
    parser.add_argument("--canvas", type=int, default=64, help="canvas length, default 64")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument("--images", action="store_true", help="write what an engine needs to see images")
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument("--tokenizer-seed", type=int, default=0, help="another gives the texts other ids")
    vocabulary.add_argument("--gemma-tokenizer", type=Path, metavar="DIR", help="a Gemma 3 tokenizer.json")
    return parser.parse_args()


def _check_tokenizer(file: dict[str, Any]) -> int:
    """Count the labels that are one token in their place.

    Raises:
        AssertionError: fewer than the tests need, or the three incident questions do not fit 16 tokens.
    """
    tokenizer: Tokenizer = Tokenizer.from_str(json.dumps(file))
    single = make_tokenizer.single_in_place(tokenizer, make_tokenizer.labels(wide=True))
    assert len(single) >= 1500, f"only {len(single)} labels are single in their place"
    assert set(FAVOURED) <= set(single), f"split in their place: {set(FAVOURED) - set(single)}"
    answer = tokenizer.encode(INCIDENT, add_special_tokens=False).tokens
    assert len(answer) <= 16, f"the incident answer takes {len(answer)} tokens: {answer}"
    return len(single)


def _write_tokenizer(file: dict[str, Any], out: Path) -> None:
    names = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "mask", "pad", "unk")}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "padding_side": "left",
        **names,
    }
    _write_json(out / "tokenizer.json", file)
    _write_json(out / "tokenizer_config.json", config)
    shutil.copyfile(CHAT_TEMPLATE, out / CHAT_TEMPLATE.name)


def _write_processor(out: Path) -> None:
    """Say how images become patches, and which tokens stand for media: an engine without it is text only."""
    sizes = {"patch_size": PATCH, "pooling_kernel_size": POOLED, "max_soft_tokens": IMAGE_TOKENS}
    processor = {
        "processor_class": "Gemma4Processor",
        "image_seq_length": IMAGE_TOKENS,
        "image_processor": {"image_processor_type": "Gemma4ImageProcessor", **sizes},
        # No test sends sound or films, but the class wants to know how.
        "feature_extractor": {"feature_extractor_type": "Gemma4AudioFeatureExtractor"},
        "video_processor": {"video_processor_type": "Gemma4VideoProcessor", **sizes},
    }
    _write_json(out / "processor_config.json", processor)
    path = out / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    _write_json(path, config | {"extra_special_tokens": MEDIA_TOKENS})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _model(vocabulary: dict[str, int], arguments: argparse.Namespace) -> DiffusionGemmaForBlockDiffusion:
    text = DiffusionGemmaTextConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        moe_intermediate_size=HIDDEN,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=arguments.sliding_window,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_global_key_value_heads=1,
        global_head_dim=64,
        num_experts=4,
        top_k_experts=2,
        max_position_embeddings=8192,
    )
    vision = Gemma4VisionConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        **(SEEING if arguments.images else BLIND),
    )
    config = DiffusionGemmaConfig(
        text_config=text,
        vision_config=vision,
        canvas_length=arguments.canvas,
        boi_token_id=vocabulary["<|image>"],
        image_token_id=vocabulary["<|image|>"],
        eoi_token_id=vocabulary["<image|>"],
        dtype="float32",
    )
    model = DiffusionGemmaForBlockDiffusion(config)
    _fill(model, vocabulary, arguments.seed)
    model.generation_config = DiffusionGemmaGenerationConfig(
        max_new_tokens=256,
        max_denoising_steps=48,
        t_min=0.4,
        t_max=0.8,
        stability_threshold=1,
        confidence_threshold=0.005,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=0.1),
        bos_token_id=vocabulary["<bos>"],
        eos_token_id=[vocabulary["<eos>"], vocabulary["<turn|>"], vocabulary["<|tool_response>"]],
        pad_token_id=vocabulary["<pad>"],
    )
    return model


@torch.no_grad()
def _fill(model: DiffusionGemmaForBlockDiffusion, vocabulary: dict[str, int], seed: int) -> None:
    """Draw all weights, at scales where every layer, and so every prompt token, moves the answer."""
    noise = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        drawn = torch.randn(weight.shape, generator=noise)
        if "norm" in name or name.endswith("scale"):
            weight.copy_(1 + 0.1 * drawn)
        elif "embed_tokens" in name or "lm_head" in name:
            weight.copy_(EMBEDDING_STD * drawn)
        else:
            weight.copy_(drawn * weight.shape[-1] ** -0.5)
    _lean_to_labels(model, vocabulary)
    model.tie_weights()


def _lean_to_labels(model: DiffusionGemmaForBlockDiffusion, vocabulary: dict[str, int]) -> None:
    """Turn coordinate 0 into a vote for labels, which random weights alone give a share of nearly nothing.

    Embeddings hold +1 there for favoured words, 0 for other label words and -1 for the rest. No layer
    writes to it, so a position that holds noise still has -1 at the end, and the last norm turns its sign
    around: favoured words gain, by enough that eleven words rival the whole vocabulary.
    """
    votes = torch.full((len(vocabulary),), -1.0)
    for value, words in ((0.0, NEUTRAL), (1.0, FAVOURED)):
        spellings = [text for word in words for text in (word, "▁" + word)]
        votes[[vocabulary[text] for text in spellings if text in vocabulary]] = value
    model.model.decoder.embed_tokens.weight[:, 0] = EMBEDDING_STD * votes
    for layer in model.model.decoder.layers:
        layer.post_attention_layernorm.weight[0] = 0
        layer.post_feedforward_layernorm.weight[0] = 0
    gain = math.log(len(vocabulary)) - 2.5  # nats between a favoured word and the rest
    share = 0.45  # of a unit left at the end, beside what two layers add to the other coordinates
    model.model.decoder.norm.weight[0] = -gain / (2 * EMBEDDING_STD * share)


if __name__ == "__main__":
    main()
