"""The options of `memup evaluate`: of the memory, of agents, of baselines."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from ..registries import AGENTS
from .choices import OneOf
from .common import option

MEASURED = "What is measured"
SHOWN = "What is shown"
WHICH = "Which weights: those with the lowest error on the validation episodes, or the last ones."


class EvaluateOptions(BaseModel):
    """What `memup evaluate memory` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    episodes: int | None = option(None, MEASURED, "Test episodes (default: all).", ge=1)
    checkpoint: Literal["best", "last"] = option("best", MEASURED, WHICH)
    bins: int = option(5, SHOWN, "Ranges of dependency length in the table.", ge=1, le=100)
    timelines: int = option(3, SHOWN, "Test episodes to draw step by step in `memup report`.", ge=0, le=32)


class EvaluateAgentOptions(BaseModel):
    """What `memup evaluate agent` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent: Annotated[str, OneOf(AGENTS)] | None = option(
        None, MEASURED, "Which agent of the run (default: the only one trained)."
    )
    episodes: int = option(200, MEASURED, "Episodes, greedy and stochastic each.", ge=1, le=10**9)
    envs: int = option(64, MEASURED, "Environments played side by side.", ge=1, le=16_384)
    record: Path | None = option(
        None, SHOWN, "Film one greedy episode: a .gif that moves, or a .png with a strip of its pictures."
    )


class EvaluateBaselinesOptions(BaseModel):
    """What `memup evaluate baselines` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    episodes: int | None = option(None, MEASURED, "Test episodes (default: all).", ge=1)
    checkpoint: Literal["best", "last"] = option("best", MEASURED, WHICH)
