"""python examples/experiments/figures EXPERIMENT FOLDER: figure.png and table.md of the runs below a folder."""

import sys
from pathlib import Path

import agents
import mazes
import plans
import sequences
import suites
from runs import read_runs

FIGURES = {
    "ablation": mazes.ablation,
    "noisy_tv": mazes.noisy_tv,
    "scaling": agents.scaling,
    "tmaze": agents.comparison,
    "supervised": sequences.supervised,
    "memory_size": sequences.memory_size,
    "space": sequences.space,
    "plan_ablation": plans.plan_ablation,
    **dict.fromkeys(("popgym", "minigrid", "memory_gym"), suites.suite),
}


def main(experiment: str, folder: Path) -> None:
    runs = read_runs(folder)
    figure, table = FIGURES[experiment](runs)
    figure.savefig(folder / "figure.png", dpi=110)
    (folder / "table.md").write_text(table)
    print(table)
    print(f"Figure: {folder / 'figure.png'}   table: {folder / 'table.md'}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
