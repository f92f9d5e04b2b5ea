"""What callers send is tokenised and forgotten, but for some thousands of words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TRIAGE = Path(__file__).parents[2] / "structured_server" / "data" / "triage"
TEXTS = 12_000
MOST_MIB = 8  # 20 and more where the library keeps what it has seen

MEASURE = f"""
from pathlib import Path
from structured_server.tokenizer import load_tokenizer

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

tokenizer = load_tokenizer({str(TRIAGE)!r})

def encode(numbers):
    for number in numbers:
        tokenizer.encode(f"Alert {{number}}: the router of office {{number * 7}} answers slowly since noon.")

encode(range(500))
before = memory()
encode(range(500, {TEXTS}))
print(memory() - before)
"""


def test_texts_that_never_come_again_are_not_kept() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < MOST_MIB
