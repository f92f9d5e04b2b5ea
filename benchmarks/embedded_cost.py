"""What a decision of the embedded model costs beside its time in ONNX Runtime.

    python -m benchmarks.embedded_cost --decisions 200 --out benchmarks/receipts/embedded_cost.json

Decisions are made one after the other in this process, through the whole application but for the socket:
three questions about texts that are all different, one draw each. A decision's time is what its answer says.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import Any

import click
import httpx

from benchmarks.reliability.asked import QUESTIONS, alert
from benchmarks.reliability.verdicts import Measured, at_most, conclude, machine
from structured_server.api.app import create_app
from structured_server.api.service import build
from structured_server.backends.embedded import EmbeddedBackend
from structured_server.settings import Settings

LIMIT = 1.3
SENTENCES = 9  # of some twenty tokens each


class Timed:
    """A session of ONNX Runtime that adds up the seconds of its runs."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.seconds = 0.0

    def run(self, *arguments: Any) -> Any:
        """Run."""
        begun = time.perf_counter()
        try:
            return self._session.run(*arguments)
        finally:
            self.seconds += time.perf_counter() - begun


async def measure(decisions: int) -> dict[str, float]:
    """Return medians in milliseconds, and the median of each decision's own ratio."""
    service = build(Settings(backend="embedded", canary_s=0, log_level="warning"))
    app = create_app(service)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        for _ in range(600):
            if (await client.get("/ready")).status_code == 200:
                break
            await asyncio.sleep(0.05)
        assert isinstance(service.backend, EmbeddedBackend)
        graph: Any = service.backend._graph
        session = graph._session = Timed(graph._session)
        whole, inside = [], []
        for number in range(decisions + 5):
            chance = random.Random(number)
            state = " ".join(alert(number * SENTENCES + each, chance) for each in range(SENTENCES))
            body = {"state": state, "questions": QUESTIONS[3], "read": {"samples": 1}}
            session.seconds = 0.0
            reply = await client.post("/decide", json=body)
            reply.raise_for_status()
            whole.append(reply.json()["timings_ms"]["total"])
            inside.append(1000 * session.seconds)
    whole, inside = whole[5:], inside[5:]  # the first ones warm up
    return {
        "decision_ms": statistics.median(whole),
        "onnxruntime_ms": statistics.median(inside),
        "ratio": statistics.median(one / other for one, other in zip(whole, inside, strict=True)),
    }


@click.command(epilog="\b\nExample:\n  python -m benchmarks.embedded_cost --decisions 200")
@click.option("--decisions", type=click.IntRange(10), default=200, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a receipt.")
def main(decisions: int, out: Path | None) -> None:
    """Measure it."""
    begun, at_first = time.monotonic(), machine()
    found = asyncio.run(measure(decisions))
    lines = [
        f"a decision {found['decision_ms']:.2f} ms, of which ONNX Runtime {found['onnxruntime_ms']:.2f} ms"
    ]
    checks = [at_most("decision over ONNX Runtime's own time", found["ratio"], LIMIT)]
    measured = Measured("Embedded model", {"decisions": decisions}, checks, found, lines)
    conclude(measured, begun, at_first, out)


if __name__ == "__main__":
    main()
