"""API keys: what is kept of them, who may come in with one, and how often."""

from structured_server.keys.file import load_keys
from structured_server.keys.gate import Admitted, Gate, Identities
from structured_server.keys.ring import KEY_PREFIX, Key, digest_of, new_key

__all__ = ["KEY_PREFIX", "Admitted", "Gate", "Identities", "Key", "digest_of", "load_keys", "new_key"]
