"""One frozen, validated model per stage; the fields' descriptions are the help text."""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..registries import CELLS, CONTEXTS, DETECTORS, PREDICTORS, PROBE, SELECTIONS
from .choices import OneOf

MB = 10**6  # bytes; what options count in, and what is shown
STAGES = ("collect", "score", "train-memory", "train-baseline", "train-agent", "evaluate")


class StageOptions(BaseModel):
    """What every stage takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    run: Path | None = Field(
        None, description="Run folder (default: the only one in runs/; collect: runs/<task>-<size>)."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything random.")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N.")
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of torch; small networks are fastest with one.")
    config: Path | None = Field(None, description="TOML file with options, one table per stage.")
    restart: bool = Field(False, description="Discard what this stage did before and begin again.")
    dry_run: bool = Field(False, description="Say what would be done, do nothing.")
    json_: bool = Field(False, alias="json", description="Print the result as one JSON object.")
    quiet: bool = Field(False, description="No progress, no notes.")
    verbose: bool = Field(False, description="Show the traceback of an error.")

    @field_validator("device")
    @classmethod
    def _known(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError("must be auto, cpu, cuda or cuda:N")
        return value


class CollectOptions(BaseModel):
    """What `memup collect` takes for every task."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
        2.0, ge=0, description="Seconds between commits; a killed job repeats at most this much."
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


class ScoreOptions(BaseModel):
    """What `memup score` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    detector: Annotated[str, OneOf(DETECTORS)] | None = Field(
        None,
        description="What estimates the uncertainty (default: quantile for numbers, classifier for classes); "
        f"{DETECTORS.summary}.",
    )
    gamma: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Discount of the returns (default: the task's; if it has none, the best of several).",
    )
    window: int | None = Field(
        None, ge=1, le=4096, description="Local steps the detector sees (default: 1 for returns, else 8)."
    )
    hidden: int = Field(64, ge=1, le=16_384, description="Units of the detector's layers.")
    updates: int = Field(
        5000, ge=1, le=1_000_000_000, description="Updates at most; it stops when the held-out loss no longer falls."
    )
    score: Literal["nll", "entropy"] = Field(
        "entropy", description="Score of the classifier: the entropy, or -log p(y), which also says what is unlikely."
    )


# Where the help shows an option.
POINTS: dict[str, Any] = {"panel": "Rollouts and prediction points"}
NETWORK: dict[str, Any] = {"panel": "The networks"}
NO_OPTION: dict[str, Any] = {"no option": True}  # only a task's hints, and tests, set it


class TrainMemoryOptions(BaseModel):
    """What `memup train-memory` takes. The plan comes before these defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    planned: ClassVar[frozenset[str]] = frozenset(
        {
            "rollout",
            "targets",
            "predict_every",
            "at_targets",
            "select",
            "explore",
            "near",
            "rollout_sampling",
            "stretch",
        }
        | {
            "replay",
            "starts",
            "hidden",
            "predictor_hidden",
            "novelty_gates",
            "context",
            "predictor",
            "spread",
            "updates",
            "lr",
            "average",
        }
    )

    preset: Literal["fast", "paper"] = Field(
        "fast",
        description="What is not given: planned by what the data look like, or as in the paper: inputs as they are.",
    )
    rollout: int = Field(
        20, ge=1, le=1_000_000, description="Steps r that gradients flow through.", json_schema_extra=POINTS
    )
    targets: int = Field(1, ge=1, le=1024, description="Target steps K per prediction point.")
    predict_every: int = Field(
        0, ge=0, description="Also predict at every f-th step of a rollout; 0: do not.", json_schema_extra=POINTS
    )
    random_points: int = Field(
        1,
        ge=0,
        le=1024,
        description="Random prediction points in a rollout, besides its last step.",
        json_schema_extra=POINTS,
    )
    at_targets: bool = Field(
        False,
        description="Also predict where a rollout comes to a target step: from the state that has read it.",
        json_schema_extra={**POINTS, "both": True},
    )
    select: Annotated[str, OneOf(SELECTIONS)] = Field("surprise", description=f"Targets; {SELECTIONS.summary}.")
    explore: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of visits to episodes on which targets are drawn from all steps alike, so that what is "
        "certain is predicted right, too; of --select utility, by uncertainty.",
    )
    temperature: float = Field(
        0.02, ge=1e-6, description="Of the selection, in units of the scores' spread: p(k) ~ exp(score / temperature)."
    )
    reach: float | None = Field(
        None,
        gt=0,
        description="Prefer near targets: their chance falls by e in so many steps.",
        json_schema_extra=NO_OPTION,
    )
    near: bool = Field(
        False,
        description="Targets near and far alike: each visit to an episode has a reach of its own, drawn from one step "
        "to the whole episode; the chance of a target falls by e in so many steps.",
        json_schema_extra={"both": True},
    )
    scores: Literal["stored", "online"] = Field(
        "stored", description="Scores of `memup score`, or the error of a slow average of the model itself."
    )
    detector: Annotated[str, OneOf(DETECTORS, but=(PROBE,))] | None = Field(
        None, description="Whose stored scores to use (default: those that `memup score` wrote last)."
    )
    gamma: float | None = Field(None, ge=0, le=1, description="Discount of the returns (default: that of the scores).")
    cell: Annotated[str, OneOf(CELLS)] = Field(
        "lstm",
        description=f"Memory cell; {CELLS.summary}.",
        json_schema_extra=NETWORK,
    )
    hidden: int = Field(64, ge=1, le=16_384, description="Size of the memory state.", json_schema_extra=NETWORK)
    layers: int = Field(
        1,
        ge=1,
        le=16,
        description="Recurrent layers of the memory, and of the context encoder.",
        json_schema_extra=NETWORK,
    )
    embedding: int = Field(
        0,
        ge=0,
        le=16_384,
        description="Units of a layer before the recurrent ones; 0: none.",
        json_schema_extra=NETWORK,
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Between recurrent layers.", json_schema_extra=NETWORK)
    input_scale: float | None = Field(
        None,
        gt=0,
        description="Spread of the memory's input weights (default: small).",
        json_schema_extra=NO_OPTION,
    )
    novelty_gates: bool = Field(
        False,
        description="lstm: gates begin closed to all but rare inputs; usual ones pile up over thousands of steps.",
        json_schema_extra={**NETWORK, "both": True},
    )
    horizon: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="How long units keep their contents at first: up to this many episodes.",
        json_schema_extra=NETWORK,
    )
    context: Annotated[str, OneOf(CONTEXTS)] = Field(
        "point",
        description=f"What the predictor knows of a target step; {CONTEXTS.summary}.",
        json_schema_extra=NETWORK,
    )
    window: int = Field(12, ge=1, le=4096, description="Steps of a context window.", json_schema_extra=NETWORK)
    context_hidden: int = Field(
        64, ge=1, le=16_384, description="Size of the encoded context.", json_schema_extra=NETWORK
    )
    context_scale: float | None = Field(
        None,
        gt=0,
        description="As input_scale, of the context encoder.",
        json_schema_extra=NO_OPTION,
    )
    predictor: Annotated[str, OneOf(PREDICTORS)] = Field(
        "mlp",
        description=f"Three layers on memory and context; {PREDICTORS.summary}.",
        json_schema_extra=NETWORK,
    )
    predictor_hidden: int = Field(
        128, ge=1, le=16_384, description="Units of the predictor's layers.", json_schema_extra=NETWORK
    )
    spread: Literal["fixed", "learned"] = Field(
        "fixed",
        description="Numbers: predict them with one spread for all (squared error), or learn each one's, so that what "
        "cannot be known yet counts less.",
        json_schema_extra=NETWORK,
    )
    batch: int = Field(64, ge=1, le=65_536, description="Rollouts B of an update.")
    replay: float = Field(
        0.0, ge=0, le=0.95, description="Share of the batch that repeats rollouts with rare inputs; the rest walk."
    )
    replay_size: int = Field(
        2048, ge=1, le=10**7, description="Rollouts kept to be repeated.", json_schema_extra=NO_OPTION
    )
    starts: float = Field(
        0.0, ge=0, le=0.95, description="Share of the batch that reads only the start of an episode, then of the next."
    )
    rollout_sampling: Literal["all", "priority"] = Field(
        "all",
        description="Train every rollout; or walk through stretches of them without gradients and train one of each, "
        "drawn by --priority and weighted so that the expected gradient stays the same.",
    )
    stretch: int = Field(
        50, ge=1, le=1_000_000, description="priority: rollouts of which one is trained, at most those of an episode."
    )
    priority: Literal["novelty", "change"] = Field(
        "novelty",
        description="priority: by how rare a rollout's inputs are, or how far the memory moves in it.",
    )
    updates: int = Field(10_000, ge=1, le=1_000_000_000, description="Optimiser steps.")
    lr: float = Field(1e-3, gt=0, description="Learning rate; it falls along a cosine.")
    lr_end: float = Field(
        0.1, gt=0, le=1, description="How far it falls: to this part of it.", json_schema_extra=NO_OPTION
    )
    clip: float = Field(1.0, gt=0, description="Largest norm of the gradient.")
    average: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Evaluate and keep the average of the weights over this share of the updates so far.",
    )
    ema: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="Decay of the slow average that online scores and carried contexts come from.",
        json_schema_extra=NO_OPTION,
    )
    slab_memory: int = Field(512, ge=1, le=1_000_000, description="MB for the steps held in RAM.")
    evaluate_every: int = Field(500, ge=1, description="Updates between evaluations on the validation split.")
    evaluate_episodes: int = Field(100, ge=1, description="Validation episodes to evaluate on, at most.")
    checkpoint_every: int = Field(500, ge=1, description="Updates between checkpoints.")
    until_rmse: float | None = Field(None, gt=0, description="Stop once the validation RMSE is below this.")
    until_mse: float | None = Field(None, gt=0, description="Stop once the validation MSE is below this.")
    until_accuracy: float | None = Field(
        None, gt=0, le=1, description="Stop once the validation accuracy is this or more."
    )

    @model_validator(mode="after")
    def _fits(self) -> "TrainMemoryOptions":
        if self.starts + self.replay > 0.95:
            raise ValueError(
                f"--starts {self.starts:g} and --replay {self.replay:g} leave none of the batch to walk through the "
                "episodes; together they can be 0.95"
            )
        return self

    @property
    def stride(self) -> int:
        """Steps that a walker goes on in an update."""
        return self.rollout * (self.stretch if self.rollout_sampling == "priority" else 1)

    @property
    def slots(self) -> int:
        """Rollouts of an update that are read from the store; the others are replayed."""
        return max(1, self.batch - round(self.batch * self.replay))

    @property
    def starters(self) -> int:
        """Those of the slots that see only the first rollout of each episode; at least one walks to the end."""
        return min(self.slots - 1, round(self.batch * self.starts))


class EvaluateOptions(BaseModel):
    """What `memup evaluate memory` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    episodes: int | None = Field(None, ge=1, description="Test episodes (default: all).")
    checkpoint: Literal["best", "last"] = Field(
        "best", description="Which weights: those with the lowest error on the validation episodes, or the last ones."
    )
    bins: int = Field(5, ge=1, le=100, description="Ranges of dependency length in the table.")
    timelines: int = Field(3, ge=0, le=32, description="Test episodes to draw step by step in `memup report`.")


def changed(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Readable differences between two resolved configurations."""
    names = [n for n in {**recorded, **wanted} if recorded.get(n) != wanted.get(n)]
    return [f"{name} was {recorded.get(name)!r} and is now {wanted.get(name)!r}" for name in names]
