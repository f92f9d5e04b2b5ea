"""Without torch, with a broken or an old one, and with a GPU that is not there: what to install is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from structured_server.backends import NotReady
from structured_server.backends.transformers import TransformersBackend
from structured_server.backends.transformers.model import choose_device
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, ReadRequest
from structured_server.errors import SettingsError, UpstreamRejected, UpstreamUnreachable
from tests.toy import ToyTokenizer

PREPARE = """
import asyncio
from structured_server.backends import NotReady
from structured_server.backends.transformers import TransformersBackend
from tests.toy import ToyTokenizer

async def prepare():
    backend = TransformersBackend("nowhere", tokenizer=ToyTokenizer(), canvas=64)
    try:
        async for step in backend.prepare():
            print(step.name)
    except NotReady as error:
        print(error)

asyncio.run(prepare())
"""
QUIET = "disable_progress_bar = disable_default_handler = enable_propagation = staticmethod(lambda: None)"
TRANSFORMERS = f"__version__ = '5.0'\nclass DynamicCache: pass\nclass logging: {QUIET}\n"
INSTALL = 'pip install "structured-server[transformers]"'


def python(code: str, *paths: Path) -> list[str]:
    """Run code in a new interpreter that looks for modules in these folders first; return what it prints."""
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": ":".join(map(str, (*paths, root)))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("torch", "transformers", "message"),
    [
        ("raise ModuleNotFoundError('no torch', name='torch')", "", f"torch is not installed: {INSTALL}."),
        ("", "raise ModuleNotFoundError(name='transformers')", f"transformers is not installed: {INSTALL}."),
        ("raise OSError('libc10.so: missing')", "", "torch cannot be imported: OSError: libc10.so: missing"),
        (
            "",
            TRANSFORMERS,
            f"transformers 5.0 has no DiffusionGemmaForBlockDiffusion: {INSTALL} --upgrade.",
        ),
        (
            "",
            TRANSFORMERS + "def __getattr__(name): raise RuntimeError('torchvision::nms\\nmore')",
            "transformers cannot import DiffusionGemmaForBlockDiffusion: RuntimeError: torchvision::nms",
        ),
    ],
    ids=["no torch", "no transformers", "broken torch", "old transformers", "broken transformers"],
)
def test_what_is_missing_is_named_with_the_line_that_installs_it(
    tmp_path: Path, torch: str, transformers: str, message: str
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    (tmp_path / "transformers.py").write_text(transformers)
    assert ["packages", message] == python(PREPARE, tmp_path)


def test_importing_the_backend_imports_nothing_heavy() -> None:
    code = (
        "import sys, structured_server.backends.transformers as ours\n"
        "print(sorted({'torch', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)))"
    )
    assert ["[]"] == python(code)


def test_before_it_is_ready_it_knows_its_widths_and_refuses_reads() -> None:
    backend = TransformersBackend("nowhere", tokenizer=ToyTokenizer(), canvas=48)
    assert "transformers" == backend.name
    assert Capabilities((16, 32, 48), None, None) == backend.capabilities


async def test_reading_without_a_model_is_an_upstream_error() -> None:
    backend = TransformersBackend("nowhere", tokenizer=ToyTokenizer(), canvas=16)
    with pytest.raises(UpstreamUnreachable, match=r"the model is not loaded\."):
        await backend.read([ReadRequest(Prompt((1,)), (1,) * 16, (3,), (4,))])
    await backend.close()


async def test_it_does_not_write_and_says_so() -> None:
    backend = TransformersBackend("nowhere", tokenizer=ToyTokenizer(), canvas=16)
    assert not backend.capabilities.generation
    with pytest.raises(UpstreamRejected, match="does not generate"):
        await backend.generate(Prompt((1,)), 5, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "gpu"}, "--device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ({"device": "cuda:x"}, "--device must be"),
        ({"dtype": "float64"}, "--dtype must be auto or one of float32, bfloat16, float16, got 'float64'"),
    ],
)
def test_a_device_or_type_that_does_not_exist_is_refused_at_once(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        TransformersBackend("nowhere", tokenizer=ToyTokenizer(), canvas=16, **settings)  # type: ignore[arg-type]


class FakeTorch:
    """As much of torch as choosing a device takes."""

    __version__ = "2.9+cpu"

    def __init__(self, gpus: int) -> None:
        self.cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)

    def device(self, *parts: object) -> tuple[object, ...]:
        """Return what was asked for."""
        return parts


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_without_a_gpu_the_cpu_is_chosen(name: str) -> None:
    assert ("cpu",) == choose_device(FakeTorch(0), name)


@pytest.mark.parametrize(("gpus", "name"), [(0, "cuda"), (2, "cuda:2")])
def test_a_gpu_that_is_not_there_is_told(gpus: int, name: str) -> None:
    with pytest.raises(NotReady, match=rf"torch 2\.9\+cpu sees {gpus} CUDA devices and --device is {name}:"):
        choose_device(FakeTorch(gpus), name)


def test_without_accelerate_nothing_is_loaded_onto_a_gpu() -> None:
    """It is not among this project's development dependencies."""
    with pytest.raises(NotReady, match="needs accelerate, which is not installed: pip install"):
        choose_device(FakeTorch(1), "auto")


@pytest.mark.parametrize(("name", "index"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_a_gpu_is_chosen_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, index: int
) -> None:
    (tmp_path / "accelerate.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert ("cuda", index) == choose_device(FakeTorch(2), name)
