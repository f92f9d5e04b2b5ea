"""The model's graph on ONNX Runtime: from a prompt and canvases to log-probabilities.

No other file knows ONNX Runtime, and none of its exceptions leaves this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from structured_server.backends import NotReady
from structured_server.backends.embedded.prompts import Ids, KeptPrompts, KeysValues
from structured_server.errors import UpstreamFailed

LogProbs = NDArray[np.float32]
"""[canvases, positions, vocabulary]"""

CHUNK = 512
"""Prompt tokens encoded at a time: attention's memory grows with chunk times prompt."""
KEPT_TOKENS = 8192

_INPUTS = ["prompt", "past", "canvases", "places"]
_OUTPUTS = ["present", "logprobs"]
_NO_CANVAS = np.zeros((1, 1), np.int64)
_NO_PLACES = np.zeros(0, np.int64)


class Graph:
    """A graph with the prompts that it has read lately. To be used by one thread at a time."""

    def __init__(self, file: Path, *, threads: int) -> None:
        """Load a graph.

        Raises:
            NotReady: it cannot be loaded, or is another one than this file knows.
        """
        try:
            import onnxruntime  # a large library, and only this backend's
        except ImportError as error:
            raise NotReady(f"onnxruntime cannot be imported: {error}.") from None
        onnxruntime.set_default_logger_severity(4)  # errors are raised; standard error is for our own lines
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise NotReady(f"{file.name} cannot be loaded ({type(error).__name__}).") from None
        inputs = {each.name: each.shape for each in self._session.get_inputs()}
        outputs = {each.name: each.shape for each in self._session.get_outputs()}
        if list(inputs) != _INPUTS or list(outputs) != _OUTPUTS:
            raise NotReady(f"{file.name} is no graph for reads: it takes {', '.join(inputs)}.")
        self.vocabulary: int = outputs["logprobs"][2]
        layers, two, one, heads, _, size = inputs["past"]
        self._prompts = KeptPrompts(
            np.zeros((layers, two, one, heads, 0, size), np.float32), tokens=KEPT_TOKENS
        )

    def read(
        self, prompt: Sequence[int], canvases: Sequence[Sequence[int]], positions: Sequence[int]
    ) -> tuple[LogProbs, int]:
        """Read canvases of one width behind a prompt of one token or more.

        Returns the log-probabilities at the positions of each, and how many of the prompt's tokens had been
        encoded before.

        Raises:
            UpstreamFailed: the runtime failed.
        """
        ids: Ids = np.array(prompt, np.int64)
        past = self._prompts.longest_start(ids)
        known = past.shape[4]
        last = known + max(0, len(ids) - known - 1) // CHUNK * CHUNK
        for start in range(known, last, CHUNK):
            past, _ = self._run(ids[start : start + CHUNK], past, _NO_CANVAS, _NO_PLACES)
        present, logprobs = self._run(
            ids[last:], past, np.array(canvases, np.int64), np.array(positions, np.int64)
        )
        self._prompts.keep(ids, present)
        return logprobs, known

    def _run(self, new: Ids, past: KeysValues, canvases: Ids, places: Ids) -> tuple[KeysValues, LogProbs]:
        values = (new[None], past, canvases, places)
        try:
            present, logprobs = self._session.run(_OUTPUTS, dict(zip(_INPUTS, values, strict=True)))
        except Exception as error:
            raise UpstreamFailed(f"the embedded model failed on the read ({type(error).__name__}).") from None
        return present, logprobs
