"""The decision log: one record a decision, in a SQLite file, made beside the path of requests."""

from structured_server.decision_log.hashing import KeyedHash, load_key
from structured_server.decision_log.record import Entry, Sender
from structured_server.decision_log.store import Selection, Store
from structured_server.decision_log.writer import DecisionLog

__all__ = ["DecisionLog", "Entry", "KeyedHash", "Selection", "Sender", "Store", "load_key"]
