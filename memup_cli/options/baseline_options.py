"""The options of train-baseline and evaluate baselines, as configs.py has those of the other stages."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..registries import BASELINES
from .choices import OneOf


class TrainBaselineOptions(BaseModel):
    """What `memup train-baseline` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[str, OneOf(BASELINES)] = Field("lstm", description="Which baseline.")
    truncate: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Steps that gradients flow through, and all that the attention of a transformer sees; default: "
        "all. gtrxl attends to 64 steps, also those before.",
    )
    hidden: int = Field(128, ge=1, le=16_384, description="Units of each layer.")
    layers: int | None = Field(
        None, ge=1, le=64, description="Recurrent or attention layers (default: 2, transformer 4; srnn has one)."
    )
    heads: int = Field(4, ge=1, le=64, description="Attention heads; they must divide --hidden.")
    gamma: float | None = Field(None, ge=0, le=1, description="Discount of the returns (default: the task's).")
    batch: int = Field(64, ge=1, le=65_536, description="Sequences, or slots that walk through them, side by side.")
    updates: int = Field(10_000, ge=1, le=1_000_000_000, description="Optimiser steps.")
    lr: float = Field(1e-3, gt=0, description="Learning rate; it falls along a cosine.")
    lr_end: float = Field(0.1, gt=0, le=1, description="How far it falls: to this part of it.")
    clip: float = Field(1.0, gt=0, description="Largest norm of the gradient.")
    slab_memory: int = Field(512, ge=1, le=1_000_000, description="MB for the steps held in RAM.")
    memory_limit: int | None = Field(
        None,
        ge=1,
        description="MB that training may take (default: what the device has free); beyond, it is not begun.",
    )
    evaluate_every: int = Field(500, ge=1, description="Updates between evaluations on the test split.")
    evaluate_episodes: int = Field(100, ge=1, description="Test episodes to evaluate on, at most.")
    checkpoint_every: int = Field(500, ge=1, description="Updates between checkpoints.")
    until_rmse: float | None = Field(None, gt=0, description="Stop once the test RMSE is below this.")
    until_mse: float | None = Field(None, gt=0, description="Stop once the test MSE is below this.")
    until_accuracy: float | None = Field(None, gt=0, le=1, description="Stop once the test accuracy is this or more.")

    @model_validator(mode="after")
    def _fits(self) -> "TrainBaselineOptions":
        if self.attends and self.hidden % self.heads:
            raise ValueError(f"--heads {self.heads} does not divide --hidden {self.hidden}")
        if BASELINES.entry(self.model).one_layer and self.layers not in (None, 1):
            raise ValueError(f"--layers {self.layers}: {self.model} has one recurrent layer")
        return self

    @property
    def attends(self) -> bool:
        return BASELINES.entry(self.model).attends

    @property
    def name(self) -> str:
        """What tells it from the other baselines of a run, such as lstm or lstm-tr20."""
        return f"{self.model}-tr{self.truncate}" if self.truncate else self.model


class EvaluateBaselinesOptions(BaseModel):
    """What `memup evaluate baselines` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    episodes: int | None = Field(None, ge=1, description="Test episodes (default: all).")
    checkpoint: Literal["best", "last"] = Field(
        "best", description="Which weights: those with the lowest error on the validation episodes, or the last ones."
    )
