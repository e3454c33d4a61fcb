"""One frozen, validated model per stage; the fields' descriptions are the help text."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator


class StageOptions(BaseModel):
    """What every stage takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Path | None = Field(None, description="Run folder (default: see the command's help).")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything random.")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N.")
    config: Path | None = Field(None, description="TOML file with options, one table per stage.")
    restart: bool = Field(False, description="Discard what this stage did before and begin again.")
    dry_run: bool = Field(False, description="Say what would be done, do nothing.")
    json_: bool = Field(False, alias="json", description="Print the result as one JSON object.")
    quiet: bool = Field(False, description="No progress, no notes; errors only.")
    verbose: bool = Field(False, description="Show the traceback of an error.")


class CollectOptions(BaseModel):
    """What `memup collect` takes for every task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    episodes: int | None = Field(None, ge=1, description="Training episodes (default: per task).")
    test_episodes: int | None = Field(None, ge=0, description="Test episodes (default: per task).")
    workers: int | None = Field(None, ge=1, le=1024, description="Threads or processes (default: the CPUs you have).")
    shard: str = Field("0/1", description="Collect only part I of N (I/N, I from 0): for job arrays.")
    commit_every: float = Field(
        2.0, ge=0, description="Seconds between commits; a killed job repeats at most this much."
    )

    @field_validator("shard")
    @classmethod
    def _part(cls, value: str) -> str:
        part, _, parts = value.partition("/")
        if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts) <= 10_000):
            raise ValueError("must be I/N with I from 0 to N-1, for example 0/4, 1/4, 2/4 and 3/4")
        return value

    @property
    def part(self) -> tuple[int, int]:
        part, _, parts = self.shard.partition("/")
        return int(part), int(parts)


def changed(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Readable differences between two resolved configurations."""
    names = [n for n in {**recorded, **wanted} if recorded.get(n) != wanted.get(n)]
    return [f"{name} was {recorded.get(name)!r} and is now {wanted.get(name)!r}" for name in names]
