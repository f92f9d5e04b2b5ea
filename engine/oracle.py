"""Answer reads with transformers in process: the second opinion that the tests hold vLLM's answers against.

    .engine/venv/bin/python engine/oracle.py MODEL

JSON lines in, JSON lines out, one each, after the line `ready`:

    {"prompt": [ids], "canvas": [ids], "positions": [places in the canvas], "ids": [ids], "images": [base64]}
    {"logprobs": [[a log-probability an id] a position], "argmax": [an id a position]}

Images may be left out; their tokens stand in the prompt already. Log-probabilities are over the whole
vocabulary at temperature 1, in nats, computed in fp32.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Sequence

import torch
import vllm_cpu_interpreter  # noqa: F401  torchvision, which transformers imports, needs it beside a CPU torch
from PIL import Image
from transformers import AutoProcessor, DiffusionGemmaForBlockDiffusion, DynamicCache


class Oracle:
    """One model in memory."""

    def __init__(self, folder: str) -> None:
        self._model = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32).eval()
        self._text = self._model.config.get_text_config(decoder=True)
        self._folder = folder

    @torch.inference_mode()
    def read(self, prompt: list[int], canvas: list[int], images: Sequence[str] = ()) -> torch.Tensor:
        """Denoise once and return log-probabilities, [canvas, vocabulary]."""
        cache = DynamicCache(config=self._text)
        self._model.model.encoder(
            input_ids=torch.tensor([prompt]), past_key_values=cache, **self._pixels(images)
        )
        kept = cache.layers[0].keys.shape[-2]  # the first layer slides, and so does its cache
        masks = {
            "full_attention": self._mask(len(prompt), len(canvas), len(prompt)),
            "sliding_attention": self._mask(len(prompt), len(canvas), kept, sliding=True),
        }
        output = self._model(
            decoder_input_ids=torch.tensor([canvas]), past_key_values=cache, decoder_attention_mask=masks
        )
        return output.logits[0].float().log_softmax(-1)

    def _pixels(self, images: Sequence[str]) -> dict[str, torch.Tensor]:
        if not images:
            return {}
        opened = [Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB") for image in images]
        processor = AutoProcessor.from_pretrained(self._folder).image_processor
        made = processor(images=opened, return_tensors="pt")
        return {name: made[name] for name in ("pixel_values", "image_position_ids")}

    def _mask(self, prompt: int, canvas: int, cached: int, *, sliding: bool = False) -> torch.Tensor:
        """Say which keys a canvas position sees, [1, 1, canvas, cached + canvas].

        A canvas sees all of itself to the right. To the left a sliding layer sees window - 1 keys, counted
        from the position itself; left alone, transformers lets it see its whole cache.
        """
        keys = torch.arange(prompt - cached, prompt + canvas)
        queries = torch.arange(prompt, prompt + canvas)[:, None]
        reach = self._text.sliding_window - 1 if sliding else prompt + canvas
        return (queries - keys <= reach)[None, None]


def main() -> None:
    """Load the model and answer until the input ends."""
    torch.set_num_threads(1)  # a server runs beside it, and threads that wait for each other are slow
    oracle = Oracle(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        rows = oracle.read(asked["prompt"], asked["canvas"], asked.get("images", ()))[asked["positions"]]
        answer = {"logprobs": rows[:, asked["ids"]].tolist(), "argmax": rows.argmax(-1).tolist()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
