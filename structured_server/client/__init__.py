"""The Python client: typed questions in, typed answers with their distributions out.

from structured_server.client import Client, Choice, Noul

with Client("http://127.0.0.1:8080") as client:
decision = client.decide("Checkout answers 502", {"urgent": Noul(instructions="Wake somebody?")})
print(decision.answers["urgent"].answer)
"""

from structured_server.client.answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    Noise,
    NoulAnswer,
    Reason,
    Reply,
    ScoreAnswer,
)
from structured_server.client.asynchronous import AsyncClient
from structured_server.client.errors import (
    BadInput,
    BadQuestions,
    ClientError,
    DeadlineExceeded,
    Forbidden,
    Loading,
    NotFound,
    Overloaded,
    Refusal,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unauthenticated,
    UnexpectedReply,
    Unreachable,
)
from structured_server.client.question_models import Criteria, Levels
from structured_server.client.questions import Abstain, Choice, Noul, Question, Questions, Score
from structured_server.client.synchronous import Client

__all__ = [
    "Abstain",
    "Answer",
    "AsyncClient",
    "BadInput",
    "BadQuestions",
    "Choice",
    "ChoiceAnswer",
    "Client",
    "ClientError",
    "Criteria",
    "DeadlineExceeded",
    "Decision",
    "Forbidden",
    "Levels",
    "Loading",
    "Noise",
    "NotFound",
    "Noul",
    "NoulAnswer",
    "Overloaded",
    "Question",
    "Questions",
    "Reason",
    "Refusal",
    "Reply",
    "Score",
    "ScoreAnswer",
    "ServerError",
    "TimedOut",
    "TooManyRequests",
    "Unauthenticated",
    "UnexpectedReply",
    "Unreachable",
]
