"""Every error this project raises on purpose.

    StructuredServerError
    ├── CallerError                    the request can be mended
    │   ├── MalformedBody              not JSON, or not text
    │   ├── UnsupportedEncoding        a content encoding that is not read here
    │   ├── BodyTooLarge
    │   ├── StateTooLong               more tokens than the engine's context holds
    │   ├── InvalidRequest             a field is wrong
    │   │   └── InvalidQuestion        a field under `questions` is wrong
    │   ├── UnknownRoute
    │   ├── MethodNotAllowed
    │   ├── UnknownModel
    │   ├── MissingKey
    │   └── WrongKey
    ├── Unavailable                    the same request may succeed later
    │   ├── Loading                    the engine is not ready yet, or no longer
    │   ├── Overloaded                 no room in the queue, or too long a wait
    │   ├── RateLimited                the key's own limit
    │   ├── IdentityUnchecked          who sends an identity token cannot be told now
    │   ├── DrawsMissing               draws that the request insists on could not be made
    │   └── DeadlineExceeded
    ├── UpstreamError                  the engine failed; nothing was invented in its place
    │   ├── UpstreamUnreachable        no connection, or one that broke
    │   ├── UpstreamTimeout
    │   ├── UpstreamRejected           it refused the read (4xx)
    │   ├── UpstreamFailed             it failed on the read (5xx)
    │   └── UpstreamProtocolError      its reply is not what the read contract promises
    ├── SettingsError                  the command line or environment is wrong
    ├── TokenizerError                 the tokenizer's files cannot be used
    └── DecisionLogError               the decision log cannot be read or written

Messages say what was wrong, where, and what would be right. They never hold text of a state or
of criteria.
"""

from __future__ import annotations

from typing import Literal

Path = tuple[str | int, ...]


class StructuredServerError(Exception):
    """The base of all errors raised on purpose.

    With a `path` the message is what is said of the field there: "needs at least 2 options, got 1."
    """

    code = "internal"
    retryable = False

    def __init__(self, message: str, *, path: Path = (), hint: str | None = None) -> None:
        self.predicate = message
        self.message = f"{'.'.join(map(str, path))} {message}" if path else message
        self.path = path
        self.hint = hint
        super().__init__(self.message)


class CallerError(StructuredServerError):
    """The request can be mended by its sender."""

    code = "invalid_request"


class MalformedBody(CallerError):
    """The body is not JSON text."""

    code = "invalid_json"


class UnsupportedEncoding(CallerError):
    """The body has a content encoding or type that is not read here."""

    code = "unsupported_encoding"


class BodyTooLarge(CallerError):
    """The body has more bytes than the server reads."""

    code = "body_too_large"


class StateTooLong(CallerError):
    """The state has more tokens than the engine's context leaves for it."""

    code = "state_too_long"


class InvalidRequest(CallerError):
    """A field of the request is wrong."""

    code = "invalid_request"


class InvalidQuestion(InvalidRequest):
    """A field of a question is wrong; `path` is relative to the question until the wire adds to it."""

    code = "invalid_question"


class UnknownRoute(CallerError):
    """No such path."""

    code = "not_found"


class MethodNotAllowed(CallerError):
    """The path exists, the method does not."""

    code = "method_not_allowed"


class UnknownModel(CallerError):
    """No such model."""

    code = "unknown_model"


class MissingKey(CallerError):
    """The server wants an API key and the request has none."""

    code = "missing_key"


class WrongKey(CallerError):
    """The request's API key is not one of the server's."""

    code = "wrong_key"


class Unavailable(StructuredServerError):
    """The same request may succeed later."""

    code = "unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Loading(Unavailable):
    """The engine is not ready yet, or no longer."""

    code = "loading"


class Overloaded(Unavailable):
    """There is no room in the queue, or the wait in it would be too long: `reason` says which."""

    code = "overloaded"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: int | None = None,
        hint: str | None = None,
        reason: Literal["queue_full", "long_wait"] = "queue_full",
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, hint=hint)
        self.reason = reason


class RateLimited(Unavailable):
    """The key has made more requests than it may for now."""

    code = "rate_limited"


class IdentityUnchecked(Unavailable):
    """What an identity token is checked with cannot be had."""

    code = "identity_unchecked"


class DrawsMissing(Unavailable):
    """Draws that the request insists on could not be made."""

    code = "draws_missing"


class DeadlineExceeded(Unavailable):
    """The answer would come after the request's deadline."""

    code = "deadline_exceeded"


class UpstreamError(StructuredServerError):
    """The engine failed, and nothing was invented in its place."""

    code = "engine_error"
    retryable = True
    kind = "other"


class UpstreamUnreachable(UpstreamError):
    """No connection to the engine, or one that broke."""

    kind = "unreachable"


class UpstreamTimeout(UpstreamError):
    """The engine did not answer in time."""

    kind = "timeout"


class UpstreamRejected(UpstreamError):
    """The engine refused the read."""

    retryable = False
    kind = "rejected"


class UpstreamFailed(UpstreamError):
    """The engine failed on the read."""

    kind = "failed"


class UpstreamProtocolError(UpstreamError):
    """The engine's reply is not what the read contract promises."""

    kind = "protocol"


class SettingsError(StructuredServerError):
    """The command line or the environment is wrong."""

    code = "settings"


class TokenizerError(StructuredServerError):
    """The tokenizer's files cannot be used."""

    code = "tokenizer"


class DecisionLogError(StructuredServerError):
    """The decision log cannot be read or written."""

    code = "decision_log"


def let_go(error: BaseException) -> None:
    """Have an error that has been dealt with let go of the frames that it came through.

    Some of them hold the task that ended with it: a circle with all that the request was, which waits for the
    garbage collector. Under overload that stopped the event loop for 0.2 s at a time.
    """
    error.__traceback__ = error.__context__ = None
