"""Reads by a vLLM server over HTTP."""

from structured_server.backends.vllm.backend import PromptTransport, VllmBackend

__all__ = ["PromptTransport", "VllmBackend"]
