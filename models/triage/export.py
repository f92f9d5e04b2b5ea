"""Exports a trained and judged model: `export.py NET TOKENIZER EVALUATION CHECKPOINT PACKAGE`.

CHECKPOINT gets transformers' files; PACKAGE gets one ONNX file with the same weights, and the tokenizer. The
graph takes new prompt tokens, the keys and values of those before them, and canvases; it gives the keys and
values of all of the prompt, and log-probabilities over the vocabulary at the wanted canvas positions. A
prompt that is already encoded is read again with no new tokens.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import onnx
import torch
from checkpoint import save
from judging import describe
from net import Net, Shape, round_to_fp16
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from structured_server.tokenizer import load_tokenizer

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
OPSET = 20


class Graph(nn.Module):
    """The net with positions counted inside."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(
        self, prompt: Tensor, past: Tensor, canvases: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values [layers, 2, 1, kv_heads, tokens, head_dim], log-probabilities [K, S, V]."""
        before, new = past.shape[4], prompt.shape[1]
        old = torch.arange(before)[None]
        positions = before + torch.arange(new)[None]
        added, _ = self.net.encode(prompt, positions, past, old)
        present = torch.cat((past, added), 4)
        count, width = canvases.shape
        known = torch.arange(before + new)[None].expand(count, -1)
        follow = (before + new + torch.arange(width))[None].expand(count, -1)
        states = self.net.read(canvases, follow, present.expand(-1, -1, count, -1, -1, -1), known)
        return present, self.net.logits(states[:, places]).log_softmax(-1)


def export(net: Net, file: Path) -> None:
    """Write the graph, its weights as fp16 that loading widens: half the size, the same numbers."""
    shape = net.shape
    example = (
        torch.randint(1, shape.vocabulary, (1, 7)),
        torch.randn(shape.layers, 2, 1, shape.kv_heads, 5, shape.head_dim),
        torch.randint(1, shape.vocabulary, (2, 16)),
        torch.tensor([3, 7, 11]),
    )
    dim = torch.export.Dim
    tokens, before, count, width, places = (dim(name) for name in ("T", "P", "K", "W", "S"))
    program = torch.onnx.export(
        Graph(net).eval(),
        example,
        dynamo=True,
        opset_version=OPSET,
        input_names=["prompt", "past", "canvases", "places"],
        output_names=["present", "logprobs"],
        dynamic_shapes=({1: tokens}, {4: before}, {0: count, 1: width}, {0: places}),
        optimize=True,
    )
    assert program is not None
    model = program.model_proto
    _halve(model)
    del model.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, file)


def _halve(model: onnx.ModelProto) -> None:
    """Store each large fp32 weight as fp16 with a cast behind it."""
    graph = model.graph
    casts = []
    for index, weight in enumerate(graph.initializer):
        values = numpy_helper.to_array(weight)
        if weight.data_type != TensorProto.FLOAT or values.size < 64:
            continue
        assert (values.astype("float16").astype("float32") == values).all(), f"{weight.name} was not rounded"
        name = weight.name
        graph.initializer[index].CopyFrom(numpy_helper.from_array(values.astype("float16"), f"{name}.half"))
        casts.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
    for cast in reversed(casts):
        graph.node.insert(0, cast)


def main() -> None:
    """Read the command line and export."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("net", type=Path, help="net.pt, as train.py writes it")
    parser.add_argument("tokenizer", type=Path, help="folder that holds the tokenizer")
    parser.add_argument("evaluation", type=Path, help="evaluation.json, as evaluate.py writes it")
    parser.add_argument("checkpoint", type=Path, help="folder to write for transformers and vLLM")
    parser.add_argument("package", type=Path, help="folder to write for the embedded backend")
    arguments = parser.parse_args()
    vocabulary = load_tokenizer(str(arguments.tokenizer)).vocabulary_size
    net = Net(Shape(vocabulary=vocabulary))
    net.load_state_dict(torch.load(arguments.net, weights_only=True))
    round_to_fp16(net)
    for folder in (arguments.checkpoint, arguments.package):
        folder.mkdir(parents=True, exist_ok=True)
        for name in TOKENIZER_FILES:
            if folder.resolve() != arguments.tokenizer.resolve():
                shutil.copyfile(arguments.tokenizer / name, folder / name)
    save(net, arguments.checkpoint)
    export(net, arguments.package / "model.onnx")
    described = describe(json.loads(arguments.evaluation.read_text("utf-8")))
    (arguments.package / "model.json").write_text(json.dumps(described, indent=1) + "\n", "utf-8")
    for folder in (arguments.checkpoint, arguments.package):
        for file in sorted(folder.iterdir()):
            print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
