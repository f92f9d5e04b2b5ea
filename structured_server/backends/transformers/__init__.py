"""Reads by DiffusionGemma in process, with torch and transformers, on CPU or CUDA.

Nothing heavy is imported here: torch and transformers are looked for when the backend is prepared.
"""

from structured_server.backends.transformers.backend import TransformersBackend

__all__ = ["TransformersBackend"]
