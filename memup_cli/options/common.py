"""What the options of all stages share: the declaration of one, and those that every stage takes."""

import re
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

MB = 10**6  # bytes; what options count in, and what is shown
STAGES = ("collect", "score", "train-memory", "train-baseline", "train-agent", "evaluate")
RARE: dict[str, Any] = {"rare": True}  # for --help-all only
NO_OPTION: dict[str, Any] = {"no option": True}  # only a task's hints, and tests, set it


def option(
    default: Any,
    group: str,
    description: str,
    *,
    rare: bool = False,
    planned: bool = False,
    both: bool = False,
    newer: bool = False,
    **limits: Any,
) -> Any:
    """An option of a stage, in a group of its help.

    rare: for --help-all only; planned: a plan comes before the default; both: also --no-..., for what it may switch on;
    newer: runs of older versions do not record it, and are as with its default.
    """
    extra: dict[str, Any] = {"panel": group, "rare": rare, "planned": planned, "both": both, "newer": newer}
    return Field(default, description=description, json_schema_extra=extra, **limits)


class StageOptions(BaseModel):
    """What every stage takes. Their variables have no stage in the name: MEMUP_RUN, MEMUP_SEED."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    panel: ClassVar[str] = "Every stage"

    run: Path | None = Field(
        None, description="Run folder (default: the only one in runs/; collect: runs/<task>-<size>)."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything random.")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N.")
    config: Path | None = Field(None, description="TOML file with options, one table per stage.")
    restart: bool = Field(False, description="Discard what this stage did before and begin again.")
    dry_run: bool = Field(False, description="Say what would be done, do nothing.")
    json_: bool = Field(False, alias="json", description="Print the result as one JSON object.")
    threads: int = Field(
        1,
        ge=1,
        le=1024,
        description="CPU threads of torch; small networks are fastest with one.",
        json_schema_extra=RARE,
    )
    quiet: bool = Field(False, description="No progress, no notes.", json_schema_extra=RARE)
    verbose: bool = Field(False, description="Show the traceback of an error.", json_schema_extra=RARE)

    @field_validator("device")
    @classmethod
    def _known(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError("must be auto, cpu, cuda or cuda:N")
        return value


def changed(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Readable differences between two resolved configurations."""
    names = [n for n in {**recorded, **wanted} if recorded.get(n) != wanted.get(n)]
    return [f"{name} was {recorded.get(name)!r} and is now {wanted.get(name)!r}" for name in names]
