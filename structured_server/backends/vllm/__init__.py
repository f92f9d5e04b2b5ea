"""Reads by a vLLM server over HTTP."""

from structured_server.backends.vllm.backend import EngineTokenizer, VllmBackend

__all__ = ["EngineTokenizer", "VllmBackend"]
