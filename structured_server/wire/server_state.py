"""What the server says of itself, `GET /v1/models` and `GET /ready`: the documented types."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OpenAIModel(_Out):
    """A name of the served model, as OpenAI's clients read it."""

    id: str
    object: Literal["model"]
    created: int = Field(description="Since when it is served here, in Unix seconds.")
    owned_by: str


class SystemOneModel(_Out):
    """A name of the served model, as TypeSafe's clients read it."""

    name: str
    description: str
    release_date: str = Field(description="Since when it is served here.", pattern=r"^\d{4}-\d\d-\d\d$")


class ModelsResponse(_Out):
    """The served model under each of its names."""

    object: Literal["list"]
    data: list[OpenAIModel]
    models: list[SystemOneModel]


class ReadyResponse(_Out):
    """Where the server stands."""

    ready: bool
    step: str = Field(description="The step that it is at.")
    waits_for: str
    seconds: float = Field(description="For how long it has been at this step.")
    problem: str | None = Field(description="What is wrong, if anything.")
