"""What stands in for the `vllm` command where the entrypoint is tested: the fake engine behind its flags.

The environment tells it: FAKE_VLLM_RECORD, a file to write its arguments and environment to;
FAKE_VLLM_LOAD_S, how long it loads before it listens; FAKE_VLLM_TERM, `ignored` or empty;
FAKE_VLLM_TOKENIZER, a folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.fake_engine import main


def run() -> None:
    """Serve as `vllm serve MODEL ...` would."""
    record = os.environ.get("FAKE_VLLM_RECORD")
    if record:
        told = {"arguments": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}
        Path(record).write_text(json.dumps(told), encoding="utf-8")
    flags = argparse.ArgumentParser()
    flags.add_argument("command", choices=["serve"])
    flags.add_argument("model")
    flags.add_argument("--port", required=True)
    flags.add_argument("--served-model-name", required=True)
    flags.add_argument("--diffusion-config", type=json.loads, required=True)
    flags.add_argument("--max-model-len", required=True)
    asked, _ = flags.parse_known_args()
    if os.environ.get("FAKE_VLLM_TERM") == "ignored":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(float(os.environ.get("FAKE_VLLM_LOAD_S", "0")))
    sys.argv = [
        "fake_engine",
        *("--port", asked.port, "--model", asked.served_model_name),
        *("--canvas", str(asked.diffusion_config["canvas_length"])),
        *("--max-model-len", asked.max_model_len),
        *("--tokenizer", os.environ["FAKE_VLLM_TOKENIZER"]),
    ]
    asyncio.run(main())


if __name__ == "__main__":
    run()
