"""The options of `memup collect` for every task; a task has options of its own beside them."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .common import RARE


class CollectOptions(BaseModel):
    """What `memup collect` takes for every task."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    panel: ClassVar[str] = "Collecting"

    episodes: int | None = Field(
        None, ge=1, description="Training episodes (default: per task); a run can be given more."
    )
    validation_episodes: int | None = Field(
        None,
        ge=1,
        description="How many of the training episodes, the last ones, are kept to choose by: when to stop, which "
        "weights are best (default: a tenth, at least 10 and at most 1,000).",
    )
    test_episodes: int | None = Field(
        None, ge=0, description="Test episodes (default: per task); a run can be given more."
    )
    workers: int | None = Field(None, ge=1, le=1024, description="Threads or processes (default: the CPUs you have).")
    shard: str = Field("0/1", description="Collect only part I of N (I/N, I from 0): for job arrays.")
    commit_every: float = Field(
        2.0,
        ge=0,
        description="Seconds between commits; a killed job repeats at most this much.",
        json_schema_extra=RARE,
    )

    @field_validator("shard")
    @classmethod
    def _part(cls, value: str) -> str:
        part, _, parts = value.partition("/")
        if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts) <= 10_000):
            raise ValueError("must be I/N with I from 0 to N-1 and N up to 10000, for example 0/4, 1/4, 2/4 and 3/4")
        return value

    @property
    def part(self) -> tuple[int, int]:
        part, _, parts = self.shard.partition("/")
        return int(part), int(parts)
