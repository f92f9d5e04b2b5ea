"""Questions that have been asked before: the same bytes of JSON are the same schema, which is made once."""

from __future__ import annotations

import msgspec

from structured_server.core.questions import Schema
from structured_server.wire.decide_request import Asking

MOST_KNOWN = 512
LONGEST_KNOWN = 65_536  # bytes


class _Body(msgspec.Struct):
    questions: msgspec.Raw = msgspec.Raw()


class KnownQuestions:
    """The schemas of the questions that came last."""

    def __init__(self) -> None:
        self._known: dict[bytes, Schema] = {}
        self._decoder = msgspec.json.Decoder(_Body)

    def __len__(self) -> int:
        return len(self._known)

    def schema_of(self, asked: Asking, body: bytes) -> Schema:
        """Return the schema of a request that was read from this body.

        Raises:
            InvalidRequest: a question breaks one of its invariants.
        """
        try:
            written = bytes(self._decoder.decode(body).questions)
        except msgspec.DecodeError:  # NaN, which a state may hold here and JSON may not
            return asked.schema_of_questions()
        schema = self._known.get(written)
        if schema is None:
            schema = asked.schema_of_questions()
            if len(written) <= LONGEST_KNOWN:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()  # those that are asked often are soon back
                self._known[written] = schema
        return schema
