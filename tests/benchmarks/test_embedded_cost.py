"""A decision of the embedded model costs little beside the model's own time."""

from __future__ import annotations

from benchmarks.embedded_cost import measure


async def test_the_time_around_the_model_is_small_beside_the_models_own() -> None:
    found = await measure(30)
    assert 1 < found["ratio"] < 1.6, "1.3 on a machine with nothing else to do"
