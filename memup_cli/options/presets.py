"""`memup train-memory --preset paper`: the paper's configurations by task and size, read when the memory is trained.

What is not listed is as in TrainMemoryOptions. So are T-Mazes and tasks that are not here; a plug-in has
`recipes["paper"]` in its spec.
"""

from typing import Any

# Supervised tasks: a layer, two LSTM layers of 128 with dropout, and a plain predictor.
SUPERVISED: dict[str, Any] = {
    "cell": "lstm",
    "horizon": 1.0,
    "predict_every": 0,
    "hidden": 128,
    "context_hidden": 128,
    "predictor_hidden": 128,
    "layers": 2,
    "embedding": 128,
    "dropout": 0.1,
    "input_scale": None,
    "novelty_gates": False,
    "predictor": "mlp",
    "spread": "fixed",
    "replay": 0.0,
    "starts": 0.0,
    "rollout_sampling": "all",
    "at_targets": False,
    "average": 0.0,
    "lr": 1e-3,
}
COPY = {**SUPERVISED, "targets": 10, "context": "window", "window": 12}
# Which digit a mark asks for is the number of marks before it: no window shows that.
SCATTERED = {**SUPERVISED, "targets": 10, "context": "carried"}
ADD = {**SUPERVISED, "targets": 3, "context": "totals"}
PMNIST = {**SUPERVISED, "hidden": 512}

# Of episodes from so many steps on.
PAPER: dict[str, dict[int, dict[str, Any]]] = {
    "copy": {0: {**COPY, "rollout": 10}, 1000: {**COPY, "rollout": 20}},
    "scattered-copy": {0: {**SCATTERED, "rollout": 10}, 1000: {**SCATTERED, "rollout": 20}},
    "add": {0: {**ADD, "rollout": 10}, 1000: {**ADD, "rollout": 20}},
    "pmnist": {0: {**PMNIST, "rollout": 30}, 3136: {**PMNIST, "rollout": 60}},
    "two-colors": {0: {"rollout": 1, "targets": 3, "hidden": 128}},
}


def paper(task: str, length: int, recipes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The options of a task with episodes of this length; of a plug-in, those of its recipes."""
    sizes = PAPER.get(task)
    if sizes is None:
        return recipes.get("paper", {})
    return sizes[max(size for size in sizes if size <= length)]
