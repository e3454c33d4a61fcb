#!/usr/bin/env bash
# The paper's ablation: which targets the memory is trained on, for several rollout lengths r.
#   surprise: MemUP.   uniform: random future steps (Rnd-Pred).   current: only the current step (Default).
#   bash examples/experiments/ablation.sh                 L = 100 and 1000, r = 1, 10, 50, three seeds
#   SEEDS=0 LENGTHS=100 ROLLOUTS=1 bash ...               some of it
# UPDATES_100 and UPDATES_1000 are the budgets per length. Cells stop early when solved (RMSE below 0.1). Interrupted runs
# continue when it is started again.
set -euo pipefail
out="${OUT:-runs/ablation}"
seeds="${SEEDS:-0 1 2}"
lengths="${LENGTHS:-100 1000}"
rollouts="${ROLLOUTS:-1 10 50}"
selections="${SELECTIONS:-surprise uniform current}"

for length in $lengths; do
  budget="UPDATES_$length"; updates="${!budget:-6000}"
  for seed in $seeds; do
    data="$out/data-$length-seed$seed"
    memup collect tmaze --length "$length" --seed "$seed" --run "$data" --quiet > /dev/null
    memup score --seed "$seed" --run "$data" --quiet > /dev/null
    for rollout in $rollouts; do
      for select in $selections; do
        cell="$out/$length-r$rollout-$select-seed$seed"
        [ -d "$cell" ] || { cp -r "$data" "$cell.new" && mv "$cell.new" "$cell"; }
        memup train-memory --run "$cell" --seed "$seed" --rollout "$rollout" --select "$select" --updates "$updates" \
          --until-rmse 0.1 --quiet > /dev/null
      done
    done
  done
done

python - "$out" <<'PY'
"""The paper's figure as a table: test RMSE, mean over seeds, and how many seeds were solved."""
import collections, json, pathlib, re, sys

cells = collections.defaultdict(list)
for path in sorted(pathlib.Path(sys.argv[1]).glob("*/manifest.json")):
    found = re.fullmatch(r"(\d+)-r(\d+)-(\w+)-seed\d+", path.parent.name)
    if found:
        entry = json.loads(path.read_text())["stages"]["train-memory"]
        if entry["status"] == "complete":
            length, rollout, select = int(found[1]), int(found[2]), found[3]
            cells[length, rollout, select].append((entry["metrics"]["rmse"], entry["metrics"]["updates"]))
for length in sorted({key[0] for key in cells}):
    print(f"\nT-Maze-LNR-{length}: test RMSE (seeds solved, mean updates)")
    rollouts = sorted({key[1] for key in cells if key[0] == length}, reverse=True)
    print(f"{'r':>12}" + "".join(f"{r:>26}" for r in rollouts))
    for select in ("surprise", "uniform", "current"):
        row = ""
        for r in rollouts:
            values = cells.get((length, r, select), [])
            if values:
                mean = sum(v for v, _ in values) / len(values)
                updates = sum(u for _, u in values) / len(values)
                cell = f"{mean:.3f} ({sum(v < 0.1 for v, _ in values)}/{len(values)}, {updates:.0f})"
                row += f"{cell:>26}"
            else:
                row += f"{'-':>26}"
        print(f"{select:>12}{row}")
PY
