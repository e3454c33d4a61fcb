"""The options of `memup score`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from ..registries import DETECTORS
from .choices import OneOf
from .common import option

SCORES = "What is scored"
DETECTOR = "Detector"


class ScoreOptions(BaseModel):
    """What `memup score` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gamma: float | None = option(
        None, SCORES, "Discount of the returns (default: the task's; if it has none, the best of several).", ge=0, le=1
    )
    score: Literal["nll", "entropy"] = option(
        "entropy", SCORES, "Score of the classifier: the entropy, or -log p(y), which also says what is unlikely."
    )
    detector: Annotated[str, OneOf(DETECTORS)] | None = option(
        None,
        DETECTOR,
        f"What estimates the uncertainty (default: quantile for numbers, classifier for classes); {DETECTORS.summary}.",
    )
    window: int | None = option(
        None, DETECTOR, "Local steps the detector sees (default: 1 for returns, else 8).", ge=1, le=4096
    )
    hidden: int = option(64, DETECTOR, "Units of the detector's layers.", ge=1, le=16_384)
    updates: int = option(
        5000,
        DETECTOR,
        "Updates at most; it stops when the held-out loss no longer falls.",
        ge=1,
        le=1_000_000_000,
    )
