"""The discount of returns, where nobody gave one: with which are surprises rare, and explained by the past?

For each candidate a detector finds what is surprising, and the probe what of it the past explains, both on training
episodes. What counts is measured on validation episodes: the share of the targets that would fall on steps which the
past explains, times how much of their uncertainty it explains. The smallest discount with which anything is uncertain
is taken if the past explains some of it: the more of the future a return sums up, the more noise is in it, and the more
of it is only how much time is left. Another one must explain nearly all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GAMMAS = (0.0, 0.9, 0.99)
ENOUGH = 0.8  # of what is drawn is explained: reason enough for a larger gamma
WORTH = 0.1  # of what is drawn is explained: no need to look further
SURE = 2.0  # standard errors of the gain from which it counts in full


@dataclass(frozen=True)
class Tried:
    """One gamma, and what was found with it."""

    gamma: float
    worth: float
    uncertain: bool
    found: dict[str, Any]

    @staticmethod
    def of(gamma: float, found: dict[str, Any]) -> "Tried":
        sure = min(1.0, max(0.0, found.get("significance", 0.0)) / SURE)
        worth = max(0.0, found.get("explained", 0.0)) * found.get("useful", 0.0) * sure
        return Tried(gamma, worth, found["uncertain"], found)


def choose_gamma(measure: Callable[[float], dict[str, Any] | None]) -> tuple[float, list[dict[str, Any]]] | None:
    """The gamma to take, and what was found with each that was tried; None if stopped."""
    tried: list[Tried] = []
    for gamma in GAMMAS:
        found = measure(gamma)
        if found is None:
            return None
        tried.append(now := Tried.of(gamma, found))
        first = not any(t.uncertain for t in tried[:-1])
        if now.uncertain and now.worth >= (WORTH if first else ENOUGH):
            chosen = now
            break
    else:
        chosen = next((t for t in tried if t.uncertain), tried[-1])
    return chosen.gamma, [{"gamma": t.gamma, "worth": t.worth, **t.found} for t in tried]
