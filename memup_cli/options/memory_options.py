"""The options of `memup train-memory`, in the groups of its help."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..registries import CELLS, CONTEXTS, DETECTORS, PREDICTORS, PROBE, SELECTIONS
from .choices import OneOf
from .common import NO_OPTION, option
from .until import supervised

TARGETS = "Target steps"
POINTS = "Rollouts and prediction points"
MEMORY = "Memory"
PREDICTOR = "Predictor"
TRAINING = "Training"
KEEPING = "Evaluation, checkpoints and RAM"


class TrainMemoryOptions(BaseModel):
    """What `memup train-memory` takes. The plan comes before these defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    targets: int = option(1, TARGETS, "Target steps K per prediction point.", ge=1, le=1024, planned=True)
    select: Annotated[str, OneOf(SELECTIONS)] = option(
        "surprise", TARGETS, f"Targets; {SELECTIONS.summary}.", planned=True
    )
    gamma: float | None = option(None, TARGETS, "Discount of the returns (default: that of the scores).", ge=0, le=1)
    scores: Literal["stored", "online"] = option(
        "stored", TARGETS, "Scores of `memup score`, or the error of a slow average of the model itself.", rare=True
    )
    detector: Annotated[str, OneOf(DETECTORS, but=(PROBE,))] | None = option(
        None, TARGETS, "Whose stored scores to use (default: those that `memup score` wrote last).", rare=True
    )
    temperature: float = option(
        0.02,
        TARGETS,
        "Of the selection, in units of the scores' spread: p(k) ~ exp(score / temperature).",
        ge=1e-6,
        rare=True,
    )
    explore: float = option(
        0.0,
        TARGETS,
        "Share of visits to episodes on which targets are drawn from all steps alike, so that what is certain is "
        "predicted right, too; of --select utility, by uncertainty.",
        ge=0,
        le=1,
        rare=True,
        planned=True,
        newer=True,
    )
    near: bool = option(
        False,
        TARGETS,
        "Targets near and far alike: each visit to an episode has a reach of its own, drawn from one step to the whole "
        "episode; the chance of a target falls by e in so many steps.",
        both=True,
        rare=True,
        planned=True,
        newer=True,
    )

    rollout: int = option(20, POINTS, "Steps r that gradients flow through.", ge=1, le=1_000_000, planned=True)
    predict_every: int = option(
        0, POINTS, "Also predict at every f-th step of a rollout; 0: do not.", ge=0, planned=True
    )
    random_points: int = option(
        1, POINTS, "Random prediction points in a rollout, besides its last step.", ge=0, le=1024, rare=True
    )
    at_targets: bool = option(
        False,
        POINTS,
        "Also predict where a rollout comes to a target step: from the state that has read it.",
        both=True,
        rare=True,
        planned=True,
    )
    rollout_sampling: Literal["all", "priority"] = option(
        "all",
        POINTS,
        "Train every rollout; or walk through stretches of them without gradients and train one of each, drawn by "
        "--priority and weighted so that the expected gradient stays the same.",
        rare=True,
        planned=True,
    )
    stretch: int = option(
        50,
        POINTS,
        "priority: rollouts of which one is trained, at most those of an episode.",
        ge=1,
        le=1_000_000,
        rare=True,
        planned=True,
    )
    priority: Literal["novelty", "change"] = option(
        "novelty", POINTS, "priority: by how rare a rollout's inputs are, or how far the memory moves in it.", rare=True
    )
    replay: float = option(
        0.0,
        POINTS,
        "Share of the batch that repeats rollouts with rare inputs; the rest walk.",
        ge=0,
        le=0.95,
        rare=True,
        planned=True,
    )
    starts: float = option(
        0.0,
        POINTS,
        "Share of the batch that reads only the start of an episode, then of the next.",
        ge=0,
        le=0.95,
        rare=True,
        planned=True,
    )

    cell: Annotated[str, OneOf(CELLS)] = option("lstm", MEMORY, f"Memory cell; {CELLS.summary}.")
    hidden: int = option(64, MEMORY, "Size of the memory state.", ge=1, le=16_384, planned=True)
    layers: int = option(
        1, MEMORY, "Recurrent layers of the memory, and of the context encoder.", ge=1, le=16, rare=True
    )
    embedding: int = option(
        0, MEMORY, "Units of a layer before the recurrent ones; 0: none.", ge=0, le=16_384, rare=True
    )
    dropout: float = option(0.0, MEMORY, "Between recurrent layers.", ge=0, lt=1, rare=True)
    novelty_gates: bool = option(
        False,
        MEMORY,
        "lstm: gates begin closed to all but rare inputs; usual ones pile up over thousands of steps.",
        both=True,
        rare=True,
        planned=True,
        newer=True,
    )
    horizon: float = option(
        1.0, MEMORY, "How long units keep their contents at first: up to this many episodes.", gt=0, le=1e6, rare=True
    )

    context: Annotated[str, OneOf(CONTEXTS)] = option(
        "point", PREDICTOR, f"What the predictor knows of a target step; {CONTEXTS.summary}.", planned=True
    )
    window: int = option(12, PREDICTOR, "Steps of a context window.", ge=1, le=4096, rare=True)
    context_hidden: int = option(64, PREDICTOR, "Size of the encoded context.", ge=1, le=16_384, rare=True)
    predictor: Annotated[str, OneOf(PREDICTORS)] = option(
        "mlp",
        PREDICTOR,
        f"Three layers on memory and context; {PREDICTORS.summary}.",
        rare=True,
        planned=True,
    )
    predictor_hidden: int = option(
        128, PREDICTOR, "Units of the predictor's layers.", ge=1, le=16_384, rare=True, planned=True
    )
    spread: Literal["fixed", "learned"] = option(
        "fixed",
        PREDICTOR,
        "Numbers: predict them with one spread for all (squared error), or learn each one's, so that what cannot be "
        "known yet counts less.",
        rare=True,
        planned=True,
    )

    preset: Literal["fast", "paper"] = option(
        "fast",
        TRAINING,
        "What is not given: planned by what the data look like, or as in the paper: inputs as they are.",
    )
    updates: int = option(10_000, TRAINING, "Optimiser steps.", ge=1, le=1_000_000_000, planned=True)
    until: str | None = option(
        None,
        TRAINING,
        'Stop once this holds on validation episodes: "rmse<0.1", "mse<0.001" or, of classes, "accuracy>0.99".',
    )
    batch: int = option(64, TRAINING, "Rollouts B of an update.", ge=1, le=65_536)
    lr: float = option(1e-3, TRAINING, "Learning rate; it falls along a cosine.", gt=0, planned=True)
    clip: float = option(1.0, TRAINING, "Largest norm of the gradient.", gt=0, rare=True)
    average: float = option(
        0.0,
        TRAINING,
        "Evaluate and keep the average of the weights over this share of the updates so far.",
        ge=0,
        le=1,
        rare=True,
        planned=True,
    )

    evaluate_every: int = option(500, KEEPING, "Updates between evaluations on the validation split.", ge=1, rare=True)
    evaluate_episodes: int = option(100, KEEPING, "Validation episodes to evaluate on, at most.", ge=1, rare=True)
    checkpoint_every: int = option(500, KEEPING, "Updates between checkpoints.", ge=1, rare=True)
    slab_memory: int = option(512, KEEPING, "MB for the steps held in RAM.", ge=1, le=1_000_000, rare=True)

    reach: float | None = Field(None, gt=0, json_schema_extra=NO_OPTION)  # steps in which a target's chance falls by e
    input_scale: float | None = Field(None, gt=0, json_schema_extra=NO_OPTION)  # spread of the memory's input weights
    context_scale: float | None = Field(None, gt=0, json_schema_extra=NO_OPTION)  # and of the context encoder's
    replay_size: int = Field(2048, ge=1, le=10**7, json_schema_extra=NO_OPTION)  # rollouts kept to be repeated
    lr_end: float = Field(0.1, gt=0, le=1, json_schema_extra=NO_OPTION)  # how far lr falls: to this part of it
    ema: float = Field(0.99, ge=0, lt=1, json_schema_extra=NO_OPTION)  # decay of the average behind online scores

    _until = field_validator("until")(supervised)

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


NEWER = {  # what runs of older versions do not record, and its default
    name: field.default
    for name, field in TrainMemoryOptions.model_fields.items()
    if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("newer")
}
