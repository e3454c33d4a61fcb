#!/usr/bin/env bash
# One row of the paper's table "Supervised Learning Results": MemUP and all baselines on one task and length.
#   bash examples/supervised.sh copy 120               also scattered-copy, add, pmnist (needs DATA_DIR or the network)
#   UPDATES=20000 BASELINE_UPDATES=5000 bash ...       budgets; without UPDATES the task's recipe says how many
#   METHODS="lstm srnn" SEED=1 OUT=runs/table bash ...
#   PRESET=paper DEVICE=cuda bash ...                  the paper's sizes, for a GPU
# The table goes to stdout and, as JSON, to evaluation/baselines.json in the run. Interrupted runs continue.
set -euo pipefail
task="${1:-copy}"
length="${2:-120}"
seed="${SEED:-0}"
device="${DEVICE:-auto}"
export MEMUP_RUN="${OUT:-runs/supervised}/$task-$length-seed$seed"
source=()
if [ "$task" = pmnist ] && [ -n "${DATA_DIR:-}" ]; then source=(--data-dir "$DATA_DIR"); fi

memup collect "$task" --length "$length" --seed "$seed" ${source[@]+"${source[@]}"} --quiet > /dev/null
memup score --seed "$seed" --device "$device" --quiet > /dev/null
memup train-memory --seed "$seed" --device "$device" --preset "${PRESET:-fast}" ${UPDATES:+--updates "$UPDATES"} > /dev/null

truncate="$(python - "$MEMUP_RUN" <<'PY'
import json, sys
config = json.load(open(f"{sys.argv[1]}/manifest.json"))["stages"]["train-memory"]["config"]
print(config["rollout"] + config["targets"])
PY
)"
for model in ${METHODS:-lstm srnn transformer}; do
  for mode in "" "--truncate $truncate"; do
    # shellcheck disable=SC2086
    memup train-baseline --model "$model" $mode --seed "$seed" --device "$device" --updates "${BASELINE_UPDATES:-5000}" > /dev/null
  done
done
memup evaluate baselines --device "$device"
