"""Getting ready in process: the steps in order, each wrong model found and named, and what fails later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from structured_server.backends import NotReady
from structured_server.backends.transformers.checkpoint import find_checkpoint
from tests.engine.reads import draw
from tests.engine.server import default_checkpoint
from tests.gemma import MADE
from tests.inprocess.real.hosted import Asked, Hosted, asked, vocabulary_size

STEPS = ["packages", "weights", "tokenizer", "warm_up"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy the default checkpoint, to be broken."""
    return Path(shutil.copytree(default_checkpoint(), tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def problem(hosted: Hosted, step: str, **settings: Any) -> str:
    """Prepare a backend that must not become ready, and stop at this step; return what is wrong."""
    hosted.make(**settings)
    prepared = hosted.prepare()
    assert STEPS[: STEPS.index(step) + 1] == [name for name, _ in prepared.steps]
    assert prepared.problem is not None
    return prepared.problem


def test_a_right_model_passes_every_step(hosted: Hosted) -> None:
    prepared = hosted.prepare()
    assert prepared.problem is None
    assert STEPS == [name for name, _ in prepared.steps]
    assert f"the weights of {default_checkpoint()} to be loaded" == prepared.steps[1][1]
    assert "the first read of the widest canvas (64 tokens)" == prepared.steps[3][1]
    assert ((16, 32, 48, 64), None, 8192) == (
        prepared.widths,
        prepared.max_label_ids,
        prepared.max_model_len,
    )


def test_device_and_type_may_be_left_to_the_model(hosted: Hosted) -> None:
    hosted.ready(device="auto", dtype="auto", canvas=32)
    assert 3 == len(hosted.read([asked()])[0][0][0].tops)


def test_preparing_again_loads_nothing_again(ready: Hosted) -> None:
    ready.read([asked(90)])
    assert ready.prepare().problem is None
    ((answer,),), _ = ready.read([asked(90)])
    assert 90 == answer.cached_tokens


def test_a_ready_model_is_watched_for_ever(ready: Hosted) -> None:
    assert ready.watch(0.3) is None


def test_a_missing_folder_is_told(hosted: Hosted, tmp_path: Path) -> None:
    told = problem(hosted, "weights", source=str(tmp_path / "absent"))
    assert f"there is no folder {tmp_path}/absent, and it is no hub id like owner/name." == told


def test_another_architecture_is_told(hosted: Hosted, folder: Path) -> None:
    edit(folder / "config.json", architectures=["Gemma3ForCausalLM"], model_type="gemma3")
    told = problem(hosted, "weights", source=str(folder))
    assert (
        f"{folder} holds a Gemma3ForCausalLM; this backend serves DiffusionGemmaForBlockDiffusion only."
        == told
    )


def test_a_canvas_wider_than_the_models_is_told(hosted: Hosted) -> None:
    assert "start it with --canvas 64." in problem(hosted, "weights", canvas=128)


def test_too_little_memory_is_told_before_anything_is_loaded(hosted: Hosted) -> None:
    """A type of half the size is proposed where it would help."""
    told = problem(hosted, "weights", free=250 * 2**20)
    folder = default_checkpoint()
    assert (
        f"{folder} needs about 0.3 GiB in float32 and cpu has 0.2 GiB free: "
        "use --dtype bfloat16, or free some memory, or choose another --device." == told
    )
    assert "--dtype" not in problem(hosted, "weights", free=250 * 2**20, dtype="bfloat16")
    hosted.ready(free=270 * 2**20)


def test_a_gpu_that_is_not_there_is_told(hosted: Hosted) -> None:
    told = problem(hosted, "weights", device="cuda")
    assert "sees 0 CUDA devices and --device is cuda: check the driver" in told


def misspell(path: Path, name: bytes) -> None:
    """Exchange two letters of a weight's name in a safetensors file."""
    content = path.read_bytes()
    assert 1 == content.count(name)
    path.write_bytes(content.replace(name, name[:-2] + name[:-3:-1]))


def test_weights_that_transformers_would_make_up_are_told(hosted: Hosted, folder: Path) -> None:
    """It fills missing weights with random numbers and goes on with a warning."""
    misspell(folder / "model.safetensors", b"model.decoder.layers.1.self_attn.q_proj.weight")
    told = problem(hosted, "weights", source=str(folder))
    assert f"{folder} lacks 2 of the weights, such as model.decoder.layers.1.self_attn.q_proj.weight." == told


def test_weights_that_only_images_need_may_be_missing(hosted: Hosted, folder: Path) -> None:
    misspell(folder / "model.safetensors", b"model.encoder.embed_vision.embedding_projection.weight")
    hosted.ready(source=str(folder))


def test_weights_that_are_cut_short_are_told(hosted: Hosted, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    assert f"{folder} cannot be loaded: SafetensorError:" in problem(hosted, "weights", source=str(folder))


@pytest.mark.usefixtures("gemma")
def test_a_tokenizer_of_another_vocabulary_is_told(hosted: Hosted) -> None:
    told = problem(hosted, "tokenizer", tokenizer=str(MADE))
    assert told.endswith(f"the model only {vocabulary_size()} entries. Set --tokenizer to the model's own.")


def test_the_size_estimate_is_that_of_the_weights(folder: Path) -> None:
    found = find_checkpoint(str(folder), None)
    stored = (folder / "model.safetensors").stat().st_size
    assert 0.9 * stored < found.bytes_as("float32") < stored
    assert found.bytes_as("float32") == 2 * found.bytes_as("bfloat16")
    with pytest.raises(NotReady):
        find_checkpoint(str(folder.parent), None)


@pytest.mark.parametrize("fault", ["gpu memory", "ram"])
def test_memory_that_runs_out_fails_the_reads_says_what_to_lower_and_is_survived(
    hosted: Hosted, fault: str
) -> None:
    """What was kept for prompts is let go."""
    hosted.ready(faults=[None, None, fault])
    hosted.read([asked(30)])
    (failure,) = hosted.failures([asked(30, 16, seed) for seed in range(4)])
    assert (
        "failed",
        "cpu ran out of memory on 4 canvases of 16 tokens and a prompt of 30: lower --max-positions.",
    ) == failure
    ((answer,),), _ = hosted.read([asked(30)])
    assert 0 == answer.cached_tokens
    assert hosted.watch(0.1) is None


def test_an_unforeseen_error_is_an_upstream_error_without_its_words(hosted: Hosted) -> None:
    hosted.ready(faults=[None, "bug"])
    assert [("failed", "the model failed on the read with IndexError.")] == hosted.failures([asked()])
    hosted.read([asked()])


def test_a_failed_read_leaves_reads_beside_it_alone(hosted: Hosted) -> None:
    hosted.ready(faults=[None, "bug"])
    failures = hosted.failures([asked(30), asked(30, seed=1)], [asked(40)])
    assert [("failed", "the model failed on the read with IndexError."), None] == failures


def test_a_device_that_fails_is_a_loss_for_good(hosted: Hosted) -> None:
    hosted.ready(faults=[None, "device"])
    lost = (
        "cpu failed (AcceleratorError: CUDA error: an illegal memory access): the server must be restarted."
    )
    assert [("unreachable", lost)] == hosted.failures([asked()])
    assert lost == hosted.watch(1)
    assert lost == hosted.prepare().problem
    assert [("unreachable", lost)] == hosted.failures([asked()])


def test_a_first_read_that_fails_is_told(hosted: Hosted) -> None:
    assert "a read of 64 tokens failed: the model failed on the read with IndexError." == problem(
        hosted, "warm_up", faults=["bug"]
    )


def test_reads_that_the_model_cannot_make_are_refused(ready: Hosted) -> None:
    """An id beyond the vocabulary would end a GPU's work for good."""
    good, size = asked(), vocabulary_size()
    unknown = [
        Asked((size,), good.canvas, (3,), (700,)),
        Asked(good.prompt, (99_999,) * 16, (3,), (700,)),
        Asked(good.prompt, good.canvas, (3,), (700, size + 1)),
    ]
    failures = ready.failures(*([each] for each in unknown))
    vocabulary = f"the model's vocabulary of {size} has no id"
    assert [("rejected", f"{vocabulary} {i}.") for i in (size, 99_999, size + 1)] == failures
    long = Asked(tuple(draw(8180, seed=1)), good.canvas, (3,), (700,))
    assert [
        ("rejected", "prompt (8180 tokens) and canvas (16) pass the model's limit 8192.")
    ] == ready.failures([long])


def test_a_failed_load_may_be_tried_again(hosted: Hosted, folder: Path) -> None:
    """The second attempt waits, since loading may mean gigabytes."""
    config = (folder / "config.json").read_text()
    (folder / "config.json").unlink()
    assert "holds no config.json" in problem(hosted, "weights", source=str(folder))
    (folder / "config.json").write_text(config)
    assert hosted.prepare().problem is None


def test_nothing_but_log_lines_is_written() -> None:
    """Progress bars and reports of transformers would stand between the log's JSON lines."""
    own = Hosted("inprocess-quiet")
    own.ready()
    own.read([asked()])
    assert "" == own.close()
