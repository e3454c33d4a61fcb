"""The discount of returns, where nobody gave one: with which are surprises rare, and explained by the past?

For each candidate a detector finds what is surprising, and the probe what of it the past explains, both on training
episodes. What counts is measured on validation episodes: the share of the targets that would fall on steps which the
past explains, times how much of their uncertainty it explains. The smallest discount is tried first, and the others
only if it is not good enough: the more of the future a return sums up, the more noise is in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GAMMAS = (0.0, 0.9, 0.99)
ENOUGH = 0.8  # of what is drawn is explained: no need to look further
WORTH = 0.1  # less is no reason to prefer a gamma
ALIKE = 0.05
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
        tried.append(Tried.of(gamma, found))
        if tried[-1].worth >= ENOUGH:
            break
    best = max(t.worth for t in tried)
    if best >= WORTH:
        chosen = next(t for t in tried if t.worth >= best - ALIKE)
    else:
        chosen = next((t for t in tried if t.uncertain), tried[-1])
    return chosen.gamma, [{"gamma": t.gamma, "worth": t.worth, **t.found} for t in tried]
