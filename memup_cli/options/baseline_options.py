"""The options of `memup train-baseline`, in the groups of its help."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from ..registries import BASELINES
from .choices import OneOf
from .common import option
from .until import supervised

MODEL = "Baseline"
TRAINING = "Training"
KEEPING = "Evaluation, checkpoints and RAM"


class TrainBaselineOptions(BaseModel):
    """What `memup train-baseline` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[str, OneOf(BASELINES)] = option("lstm", MODEL, "Which baseline.")
    truncate: int | None = option(
        None,
        MODEL,
        "Steps that gradients flow through, and all that the attention of a transformer sees; default: all. gtrxl "
        "attends to 64 steps, also those before.",
        ge=1,
        le=1_000_000,
    )
    hidden: int = option(128, MODEL, "Units of each layer.", ge=1, le=16_384)
    layers: int | None = option(
        None, MODEL, "Recurrent or attention layers (default: 2, transformer 4; srnn has one).", ge=1, le=64
    )
    heads: int = option(4, MODEL, "Attention heads; they must divide --hidden.", ge=1, le=64)

    updates: int = option(10_000, TRAINING, "Optimiser steps.", ge=1, le=1_000_000_000)
    until: str | None = option(
        None,
        TRAINING,
        'Stop once this holds on validation episodes: "rmse<0.1", "mse<0.001" or, of classes, "accuracy>0.99".',
    )
    gamma: float | None = option(None, TRAINING, "Discount of the returns (default: the task's).", ge=0, le=1)
    batch: int = option(64, TRAINING, "Sequences, or slots that walk through them, side by side.", ge=1, le=65_536)
    lr: float = option(1e-3, TRAINING, "Learning rate; it falls along a cosine.", gt=0)
    lr_end: float = option(0.1, TRAINING, "How far it falls: to this part of it.", gt=0, le=1, rare=True)
    clip: float = option(1.0, TRAINING, "Largest norm of the gradient.", gt=0, rare=True)

    evaluate_every: int = option(500, KEEPING, "Updates between evaluations on the validation split.", ge=1, rare=True)
    evaluate_episodes: int = option(100, KEEPING, "Validation episodes to evaluate on, at most.", ge=1, rare=True)
    checkpoint_every: int = option(500, KEEPING, "Updates between checkpoints.", ge=1, rare=True)
    slab_memory: int = option(512, KEEPING, "MB for the steps held in RAM.", ge=1, le=1_000_000, rare=True)
    memory_limit: int | None = option(
        None, KEEPING, "MB that training may take (default: what the device has free); beyond, it is not begun.", ge=1
    )

    _until = field_validator("until")(supervised)

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
