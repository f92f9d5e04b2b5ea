"""Let torchvision be imported where its compiled half cannot be loaded.

Gemma 4's image processor, which vLLM imports even to serve text, imports torchvision. That package
registers shape functions for operators which its C++ library declares; a library linked against CUDA
does not load beside a CPU torch, and then the registration fails. Declaring the operators is enough:
nothing calls them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # operators live as long as their library object


def declare() -> None:
    """Declare torchvision's operators, unless its own library does."""
    spec = find_spec("torchvision")
    if _declared or spec is None or spec.origin is None or _loads(Path(spec.origin).parent):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)


def _loads(package: Path) -> bool:
    """Say whether the compiled half of the package can be loaded."""
    try:
        for extension in package.glob("_C*.so"):
            torch.ops.load_library(str(extension))
            return True
    except OSError:
        pass
    return False
