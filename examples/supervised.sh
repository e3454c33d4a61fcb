#!/usr/bin/env bash
# One row of the paper's table "Supervised Learning Results": MemUP and all baselines on one task and length.
#   bash examples/supervised.sh copy 120               also scattered-copy, add, pmnist
#   UPDATES=20000 BASELINE_UPDATES=5000 METHODS="lstm srnn" SEED=1 OUT=runs/table bash ...
#   PRESET=paper MEMUP_DEVICE=cuda bash ...            the paper's sizes, for a GPU
# The table goes to stdout and, as JSON, to evaluation/baselines.json in the run. Interrupted runs continue. The whole
# table, and what the variables are: experiments/supervised_table.sh.
set -euo pipefail
ROWS="${1:-copy}-${2:-120}" SEEDS="${SEED:-0}" \
  exec bash "$(dirname "$0")/experiments/supervised_table.sh" --cell 0
