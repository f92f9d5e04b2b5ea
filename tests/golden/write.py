"""Writes the golden file anew: `make golden`. Its diff shows which numbers will move."""

from __future__ import annotations

import asyncio

from tests.gemma import diffusion_gemma_tokenizer
from tests.golden.record import upstream_bodies
from tests.golden.requests import REQUESTS
from tests.golden.test_upstream_bytes import GOLDEN, encode


async def main() -> None:
    """Write the bodies of all requests."""
    tokenizer = diffusion_gemma_tokenizer()
    recorded = {name: await upstream_bodies(tokenizer, request) for name, request in REQUESTS.items()}
    GOLDEN.write_text(encode(recorded), "utf-8")


asyncio.run(main())
