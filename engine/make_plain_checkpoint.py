"""Write a small autoregressive checkpoint beside a DiffusionGemma one, with the same tokenizer.

    .engine/venv/bin/python engine/make_plain_checkpoint.py DIFFUSION_CHECKPOINT OUT

An engine that serves it takes every argument of a seeded read, ignores it, and answers politely: what
readiness must find out. Runs in the environment that engine/setup.sh makes.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("like", type=Path, help="checkpoint whose tokenizer is taken")
    parser.add_argument("out", type=Path, help="folder to write")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.like)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(arguments.out)
    for name in TOKENIZER_FILES:
        shutil.copy(arguments.like / name, arguments.out)


main()
