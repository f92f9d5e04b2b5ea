"""The compiler half of the Triton backend: none, since an interpreted kernel is never compiled."""

from __future__ import annotations

from typing import Any, NoReturn

from triton.backends.compiler import BaseBackend, GPUTarget

_REFUSAL = "this Triton backend compiles nothing: set TRITON_INTERPRET=1"


class InterpreterBackend(BaseBackend):
    """Answer Triton's questions about a backend, and refuse every compilation."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "cpu-interpreter"

    def parse_options(self, options: dict[str, Any]) -> NoReturn:
        raise NotImplementedError(_REFUSAL)

    def add_stages(self, stages: dict[str, Any], options: object, language: object = None) -> NoReturn:
        raise NotImplementedError(_REFUSAL)

    def load_dialects(self, ctx: object) -> None:
        del ctx

    def get_module_map(self) -> dict[str, Any]:
        return {}
