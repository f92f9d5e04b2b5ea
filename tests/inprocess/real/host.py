"""Host transformers backends for tests, in the environment that has torch: JSON lines in, JSON lines out.

    {"make": {settings}}            a new backend instead of the last one; the first line out is {}
    {"prepare": []}                 walk the steps
    {"read": [[read, ...], ...]}    perform batches of reads, all at once
    {"give_up": [[read, ...], n, s]}  cancel the batch after n turns of the event loop and s seconds
    {"watch": seconds}              what became of the backend, null while nothing has

A read is [prompt, canvas, positions, label ids]. An answer to reads also tells the sizes of the batches that
the model got. `settings` are the constructor's, and: `tokenizer`, a folder; `free`, the bytes of memory to
pretend; `faults`, what goes wrong at each denoising; `slow`, the seconds that one takes; the model's bounds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from structured_server.backends import NotReady
from structured_server.backends.transformers import TransformersBackend
from structured_server.backends.transformers.checkpoint import Checkpoint
from structured_server.backends.transformers.model import Model, Packages
from structured_server.core.reads import Prompt, Read, ReadRequest
from structured_server.errors import UpstreamError
from structured_server.tokenizer import load_tokenizer

FAULTS: dict[str, Callable[[Any], Exception]] = {
    "gpu memory": lambda torch: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB."),
    "ram": lambda _: RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
    ),
    "device": lambda torch: torch.AcceleratorError("CUDA error: an illegal memory access\nmore"),
    "bug": lambda _: IndexError("a text of the caller's"),
}


def loader(
    batches: list[int], faults: list[str | None], slow: float, bounds: dict[str, int]
) -> Callable[[Packages, Checkpoint, Any, str], Model]:
    """Return what loads models that keep count of their batches, and fail as told."""

    class Observed(Model):
        def __init__(self, packages: Packages, network: Any, device: Any) -> None:
            super().__init__(packages, network, device, **bounds)

        def _denoise(self, cache: Any, prompt: int, canvases: Sequence[tuple[int, ...]]) -> Any:
            batches.append(len(canvases))
            time.sleep(slow)
            if fault := faults.pop(0) if faults else None:
                raise FAULTS[fault](self._torch)
            return super()._denoise(cache, prompt, canvases)

    return Observed.load


class Host:
    """One backend at a time."""

    def __init__(self) -> None:
        self._backend: TransformersBackend | None = None
        self._batches: list[int] = []

    @property
    def backend(self) -> TransformersBackend:
        """The backend that was made last."""
        assert self._backend is not None
        return self._backend

    async def make(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Close the last backend and make another."""
        if self._backend is not None:
            await self._backend.close()
        self._batches = []
        free = settings.pop("free", None)
        source, tokenizer = settings.pop("source"), load_tokenizer(settings.pop("tokenizer"))
        load = loader(
            self._batches,
            settings.pop("faults", []),
            settings.pop("slow", 0.0),
            {name: settings.pop(name) for name in ("kept_tokens", "encoded_at_once") if name in settings},
        )
        if free is not None:
            settings["free_memory"] = lambda _torch, _device: free
        self._backend = TransformersBackend(source, tokenizer=tokenizer, load=load, **settings)
        return {}

    async def prepare(self, _: Any) -> dict[str, Any]:
        """Walk the steps and tell them, the problem if there is one, and the capabilities."""
        steps: list[list[str]] = []
        problem = None
        try:
            async for step in self.backend.prepare():
                steps += [[step.name, step.waits_for]]
        except NotReady as error:
            problem = str(error)
        can = self.backend.capabilities
        return {
            "steps": steps,
            "problem": problem,
            "widths": can.widths,
            "max_label_ids": can.max_label_ids,
            "max_model_len": can.max_model_len,
        }

    async def read(self, batches: list[list[Any]]) -> dict[str, Any]:
        """Perform batches at once and tell what each came to."""
        self._batches.clear()
        requests = [list(map(_request, batch)) for batch in batches]
        outcomes = await asyncio.gather(*map(self.backend.read, requests), return_exceptions=True)
        return {"outcomes": list(map(_outcome, outcomes)), "batches": list(self._batches)}

    async def give_up(self, arguments: list[Any]) -> dict[str, Any]:
        """Begin a batch, cancel it, and let the event loop turn."""
        batch, turns, seconds = arguments
        reading = asyncio.create_task(self.backend.read(list(map(_request, batch))))
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.sleep(seconds)
        reading.cancel()
        await asyncio.wait([reading])
        return {"cancelled": reading.cancelled()}

    async def watch(self, seconds: float) -> dict[str, Any]:
        """Watch for so long."""
        try:
            async with asyncio.timeout(seconds):
                return {"lost": await self.backend.watch()}
        except TimeoutError:
            return {"lost": None}


def _request(read: list[Any]) -> ReadRequest:
    prompt, canvas, positions, label_ids = map(tuple, read)
    return ReadRequest(Prompt(prompt), canvas, positions, label_ids)


def _outcome(outcome: list[Read] | BaseException) -> dict[str, Any]:
    if isinstance(outcome, UpstreamError):
        return {"kind": outcome.kind, "message": outcome.message}
    if isinstance(outcome, BaseException):
        return {"foreign": repr(outcome)}
    return {
        "reads": [
            {
                "logprobs": [list(row.logprobs.items()) for row in read.rows],
                "tops": [row.top for row in read.rows],
                "prompt_tokens": read.prompt_tokens,
                "cached_tokens": read.cached_tokens,
            }
            for read in outcome
        ]
    }


async def main() -> None:
    """Answer until the input ends."""
    import_module(
        "vllm_cpu_interpreter"
    )  # torchvision, which transformers imports, needs it beside a CPU torch
    host = Host()
    while line := await asyncio.to_thread(sys.stdin.readline):
        ((command, arguments),) = json.loads(line).items()
        answer = await getattr(host, command)(arguments)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
