"""What can go wrong between a caller and a server.

ClientError
├── BadQuestions       before anything was sent: a model's field that is no question
├── Unreachable        no connection, or it broke
│   └── TimedOut       no answer within the time that the caller gave
├── UnexpectedReply    an answer, but none that such a server gives
└── Refusal            the server's own error
    ├── BadInput           400, 413, 415, 422, and other 4xx
    ├── Unauthenticated    401
    ├── Forbidden          403
    ├── NotFound           404
    ├── TooManyRequests    429
    └── ServerError        500, 502, and other 5xx
        ├── Loading            503 `loading`
        ├── Overloaded         503
        └── DeadlineExceeded   504
"""

from __future__ import annotations

from dataclasses import dataclass


class ClientError(Exception):
    """There is no decision. `retryable` tells whether the same request may succeed later."""

    retryable = False
    retry_after_s: float | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadQuestions(ClientError):
    """A model cannot be the question set."""


class Unreachable(ClientError):
    """No connection, or it broke before the answer was whole."""

    retryable = True


class TimedOut(Unreachable):
    """No answer within the time that the caller gave."""

    retryable = False  # there is no time left


class UnexpectedReply(ClientError):
    """What answered is no server of this kind, or something before it answered in its place."""

    def __init__(self, message: str, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = status in (429, 502, 503, 504)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Told:
    """What a server says of an error."""

    status: int
    code: str
    message: str
    hint: str | None = None
    path: tuple[str | int, ...] = ()
    retryable: bool = False
    request_id: str | None = None
    retry_after_s: float | None = None


class Refusal(ClientError):
    """The server's own error: its status, its code, and what would be right."""

    def __init__(self, told: Told) -> None:
        super().__init__(" ".join(part for part in (told.message, told.hint) if part))
        self.told = told
        self.retryable = told.retryable
        self.retry_after_s = told.retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.told.status

    @property
    def code(self) -> str:
        """What kind of error it is, in the server's words."""
        return self.told.code

    @property
    def hint(self) -> str | None:
        """What would be right."""
        return self.told.hint

    @property
    def path(self) -> tuple[str | int, ...]:
        """The field of the request that is wrong."""
        return self.told.path

    @property
    def request_id(self) -> str | None:
        """What the server's log has it under."""
        return self.told.request_id


class BadInput(Refusal):
    """The request is wrong."""


class Unauthenticated(Refusal):
    """An API key is missing, or unknown."""


class Forbidden(Refusal):
    """The API key may not do this."""


class NotFound(Refusal):
    """There is no such path, or no such model."""


class TooManyRequests(Refusal):
    """The key's limit is used up for now."""


class ServerError(Refusal):
    """The server, or the engine behind it, failed."""


class Loading(ServerError):
    """The engine is not ready yet."""


class Overloaded(ServerError):
    """There is no room in the queue."""


class DeadlineExceeded(ServerError):
    """The server had no answer within the deadline."""


BY_STATUS: dict[int, type[Refusal]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    429: TooManyRequests,
    503: Overloaded,
    504: DeadlineExceeded,
    529: Overloaded,  # System One's
}


def refusal(told: Told) -> Refusal:
    """Return the error that a server tells of."""
    if told.code == "loading":
        return Loading(told)
    return BY_STATUS.get(told.status, ServerError if told.status >= 500 else BadInput)(told)
