"""Reads by the small model that is shipped inside the package, on ONNX Runtime."""

from structured_server.backends.embedded.backend import EmbeddedBackend
from structured_server.backends.embedded.model import DemoModel, load_demo_model

__all__ = ["DemoModel", "EmbeddedBackend", "load_demo_model"]
