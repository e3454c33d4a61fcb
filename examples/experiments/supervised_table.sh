#!/usr/bin/env bash
# The paper's table "Supervised Learning Results". A cell is a row of it: MemUP and all baselines on one task and length,
# over whole sequences and truncated to r + K steps. Permuted MNIST needs MEMUP_COLLECT_DATA_DIR (see docs/commands.md) or the
# network. ../supervised.sh makes one row.
#   bash examples/experiments/supervised_table.sh --local --small
#   ROWS="copy-120 add-100" SEEDS="0 1 2" UPDATES=20000 BASELINE_UPDATES=5000 METHODS="lstm srnn" bash ...
#   PRESET=paper MEMUP_DEVICE=cuda bash ...            the paper's sizes, for a GPU
# Without UPDATES the plan says how many.

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  data=() detect=()
  : "${METHODS:=lstm srnn transformer}" "${SEEDS:=0}"
  case "$1" in
    full)
      : "${ROWS:=$(echo {copy,scattered-copy}-{120,520,1020,5020} add-{100,500,1000,5000} pmnist-{784,3136})}"
      : "${BASELINE_UPDATES:=5000}"
      ;;
    small)
      : "${ROWS:=copy-30 add-30}" "${UPDATES:=1000}" "${BASELINE_UPDATES:=150}"
      data=(--episodes 5000 --test-episodes 500) detect=(--updates 300)
      ;;
    tiny)
      : "${ROWS:=copy-24}" "${UPDATES:=4}" "${BASELINE_UPDATES:=2}"
      data=(--episodes 64 --test-episodes 8) detect=(--updates 10)
      ;;
  esac
}

cells() {
  local row seed
  for row in $ROWS; do
    for seed in $SEEDS; do echo "$row seed$seed"; done
  done
}

cell() {
  local model reach
  stage collect "${1%-*}" --length "${1##*-}" "${data[@]}"
  stage score "${detect[@]}"
  stage train-memory --preset "${PRESET:-fast}" ${UPDATES:+--updates "$UPDATES"}
  reach="$(python -c 'import json, sys
config = json.load(open(sys.argv[1]))["stages"]["train-memory"]["config"]
print(config["rollout"] + config["targets"])' "$MEMUP_RUN/manifest.json")"
  for model in $METHODS; do
    stage train-baseline --model "$model" --updates "$BASELINE_UPDATES"
    stage train-baseline --model "$model" --updates "$BASELINE_UPDATES" --truncate "$reach"
  done
  memup evaluate baselines
}

main supervised "$@"
