"""What vLLM 0.32's CPU build lacks to serve a diffusion model on a CPU, and nothing else.

driver, compiler
    vLLM's diffusion path is written in Triton, and no Triton with a CPU backend is on the package index.
    This is a backend named `cpu` that can do nothing but be present: with TRITON_INTERPRET=1 Triton then
    runs each kernel in its own Python interpreter.
kernels
    Torch versions of the kernels that the interpreter is too slow for, or cannot run.
torchvision_operators
    The index has torchvision for CUDA only, and that does not import beside a CPU torch.

Triton imports this package when it lists its backends, which vLLM does in each of its processes
before it looks at any model: early enough for the last of the three.
"""

from __future__ import annotations

from vllm_cpu_interpreter.torchvision_operators import declare

declare()
