"""Makes the training scripts importable, as they are when they run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "triage"))
