#!/usr/bin/env bash
# The paper's ablation: which targets the memory is trained on, for several rollout lengths r and maze lengths L.
#   surprise: MemUP.   uniform: random future steps (Rnd-Pred).   current: only the current step (Default).
# A cell stops early when it is solved (RMSE below 0.1).
#   bash examples/experiments/ablation.sh --local --small
#   LENGTHS="100 1000" ROLLOUTS="1 10 50" UPDATES=4000 SEEDS="0 1 2" bash examples/experiments/ablation.sh

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  detect=()
  : "${SELECTIONS:=surprise uniform current}"
  case "$1" in
    full) : "${LENGTHS:=100 1000}" "${ROLLOUTS:=1 5 10 50 100}" "${SEEDS:=0 1 2 3 4 5}" ;;
    small) : "${LENGTHS:=100}" "${ROLLOUTS:=1 10}" "${SEEDS:=0}" "${UPDATES:=1000}"; detect=(--updates 300) ;;
    tiny) : "${LENGTHS:=20}" "${ROLLOUTS:=5}" "${SEEDS:=0}" "${UPDATES:=4}"; detect=(--updates 20) ;;
  esac
}

cells() {
  local length rollout select seed
  for length in $LENGTHS; do
    for rollout in $ROLLOUTS; do
      for select in $SELECTIONS; do
        for seed in $SEEDS; do echo "tmaze-$length r$rollout $select seed$seed"; done
      done
    done
  done
}

cell() {
  local length="${1#tmaze-}"
  local as_in_the_paper=$((length < 1000 ? 30000 : 300000))
  stage collect tmaze --length "$length"
  stage score "${detect[@]}"
  # Inputs as they are: in units of how much they vary, a memory keeps the hint of a short maze before it is trained.
  stage train-memory --preset paper --rollout "${2#r}" --select "$3" --updates "${UPDATES:-$as_in_the_paper}" --until "rmse<0.1"
  stage evaluate memory
}

main ablation "$@"
