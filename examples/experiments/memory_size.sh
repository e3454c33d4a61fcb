#!/usr/bin/env bash
# The paper's table "Memory size impact": add-500 and pmnist-784 with 128 to 1024 units. Permuted MNIST needs
# MEMUP_COLLECT_DATA_DIR (see docs/commands.md) or the network.
#   bash examples/experiments/memory_size.sh --local --small
#   TASKS=add-500 HIDDEN="128 256" SEEDS="0 1 2" UPDATES=12000 PRESET=paper MEMUP_DEVICE=cuda bash ...

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  data=() detect=()
  case "$1" in
    full) : "${TASKS:=add-500 pmnist-784}" "${HIDDEN:=128 256 512 1024}" "${SEEDS:=0}" ;;
    small)
      : "${TASKS:=add-40 pmnist-196}" "${HIDDEN:=16 64 256}" "${SEEDS:=0}" "${UPDATES:=400}"
      data=(--episodes 4000 --test-episodes 500) detect=(--updates 200)
      ;;
    tiny)
      : "${TASKS:=add-20}" "${HIDDEN:=8 16}" "${SEEDS:=0}" "${UPDATES:=4}"
      data=(--episodes 64 --test-episodes 8) detect=(--updates 20)
      ;;
  esac
}

cells() {
  local task units seed
  for task in $TASKS; do
    for units in $HIDDEN; do
      for seed in $SEEDS; do echo "$task h$units seed$seed"; done
    done
  done
}

cell() {
  stage collect "${1%-*}" --length "${1##*-}" "${data[@]}"
  stage score "${detect[@]}"
  stage train-memory --hidden "${2#h}" --preset "${PRESET:-fast}" ${UPDATES:+--updates "$UPDATES"}
  stage evaluate memory
}

main memory_size "$@"
