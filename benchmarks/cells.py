"""Memory cells: how fast each is, and how long a maze it learns in how many updates.

    python benchmarks/cells.py [--lengths 50 100] [--updates 2000] [--repeats 5] [--no-learning]

update    updates of memory training per second, over those of the LSTM (batch 64, 64 units, r = 20)
sweep     steps per second of a forward pass without gradients over 64 sequences of 1,000 steps, over those of the LSTM
kept_kb   what an update keeps for its backward pass
learned   updates until T-Maze of that length is solved (test RMSE below 0.1); null: not within --updates, and longer
          ones are not tried
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import torch
from measure import alternate, show
from memory_use import memup

from memup_cli.compute.adam import Adam
from memup_cli.compute.pace import Watch
from memup_cli.learning.update import optimiser_step, rollout_loss
from memup_cli.learning.weights import build_model
from memup_cli.predictor.predictor import MemoryModel
from memup_cli.streaming.targets import TARGET
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from memup_cli.tasks.spec import PREVIOUS_ACTION

CELLS = {"lstm": ("lstm", 1), "lstm, 2 layers": ("lstm", 2), "gru": ("gru", 1), "mingru": ("mingru", 1)}
BATCH, ROLLOUT, STEPS = 64, 20, 1000


def inputs(steps: int) -> dict[str, torch.Tensor]:
    """Steps of the T-Maze, as far as the networks' speed can tell."""
    observation = torch.randint(-1, 2, (BATCH, steps, 3), dtype=torch.int8)
    return {"observation": observation, PREVIOUS_ACTION: torch.randint(0, 2, (BATCH, steps), dtype=torch.int32)}


def batch() -> dict[str, torch.Tensor]:
    """An update's tensors with two prediction points of one target each."""
    return {
        **inputs(ROLLOUT),
        "fresh": torch.zeros(BATCH, dtype=torch.bool),
        "points": torch.randint(0, ROLLOUT, (BATCH, 2)),
        "query.observation": torch.randint(-1, 2, (BATCH, 2, 1, 3), dtype=torch.int8),
        "query.action": torch.randint(0, 2, (BATCH, 2, 1), dtype=torch.uint8),
        TARGET: torch.randn(BATCH, 2, 1),
        "exists": torch.ones(BATCH, 2, 1, dtype=torch.bool),
    }


def update(model: MemoryModel, optimiser: Adam, tensors: dict[str, torch.Tensor]) -> None:
    for _ in range(10):
        loss, _ = rollout_loss(model, tensors, model.memory.initial(BATCH))
        optimiser_step(model, optimiser, loss, 1e-3, 1.0)


@torch.no_grad()
def sweep(model: MemoryModel, arrays: dict[str, torch.Tensor]) -> None:
    model.rollout(arrays, model.memory.initial(BATCH))


def speeds(repeats: int) -> dict[str, dict]:
    torch.set_num_threads(1)
    spec, tensors, arrays = TMaze(TMazeOptions()).spec, batch(), inputs(STEPS)
    updates, sweeps, kept = [], [], []
    for cell, layers in CELLS.values():
        model = build_model(spec, {"cell": cell, "layers": layers}, STEPS)
        optimiser = Adam(model.parameters(), lr=1e-3)
        watch = Watch(model)
        with watch.saved_tensors():
            rollout_loss(model, tensors, model.memory.initial(BATCH))
        kept.append(watch.saved_bytes)
        updates.append(partial(update, model, optimiser, tensors))
        sweeps.append(partial(sweep, model, arrays))
    found: dict[str, dict] = {name: {"kept_kb": round(size / 1e3)} for name, size in zip(CELLS, kept, strict=True)}
    for figure, works in (("update", updates), ("sweep", sweeps)):
        alternate(1, *works)  # the first calls make torch choose its kernels
        times = alternate(repeats, *works)
        for name, seconds in zip(CELLS, times, strict=True):
            found[name][figure] = round(times[0] / seconds, 2)
    return found


def learn(lengths: list[int], updates: int, folder: Path) -> dict[str, dict[str, int | None]]:
    """Updates that each cell needs, every 250 of them looked at; all on the same episodes and scores."""
    learned: dict[str, dict[str, int | None]] = {name: {} for name in CELLS}
    for length in lengths:
        run = folder / str(length)
        memup("collect", "tmaze", "--length", length, "--run", run)
        memup("score", "--run", run, "--updates", 1000)
        for name, (cell, layers) in CELLS.items():
            if None in learned[name].values():
                continue
            goal = ("--until", "rmse<0.1", "--updates", updates, "--evaluate-every", 250, "--restart")
            done = memup("train-memory", "--run", run, "--cell", cell, "--layers", layers, *goal)
            learned[name][str(length)] = done["updates"] if done["rmse"] < 0.1 else None
    return learned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-learning", action="store_true")
    options = parser.parse_args()
    found = speeds(options.repeats)
    if not options.no_learning:
        with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
            for cell, learned in learn(sorted(options.lengths), options.updates, Path(name)).items():
                found[cell]["learned"] = learned
    show(**found)


if __name__ == "__main__":
    main()
