"""Which episodes of a data set are for the test: a share of them, evenly spread over it."""

import numpy as np

from ...errors import UsageProblem


def usual_shares(total: int, share: float) -> tuple[int, int]:
    """Training and test episodes; one of each at least, if both are wanted."""
    test = min(total - 1, max(share > 0, round(total * share)))
    return total - test, test


def shared_out(name: str, total: int, episodes: dict[str, int]) -> dict[str, np.ndarray]:
    """The numbers of the episodes of each split."""
    if sum(episodes.values()) > total:
        raise UsageProblem(f"{name} has only {total:,} episodes; ask for fewer, or for a smaller test split")
    test = episodes["test"]
    held_out = ((np.arange(test) + 0.5) * total / max(test, 1)).astype(np.int64)
    return {"test": held_out, "train": np.setdiff1d(np.arange(total), held_out)}


def check_same_test(name: str, earlier: dict[str, int], episodes: dict[str, int]) -> None:
    """With more test episodes, both splits are others."""
    if earlier["test"] != episodes["test"]:
        raise UsageProblem(
            f"--test-episodes {episodes['test']}: the run has {earlier['test']} of {name}, and with more of them all "
            "episodes would be shared out anew. Use --restart to discard it and import again, or another --run."
        )
