#!/usr/bin/env bash
# The paper's scaling experiment: a memory, and PPO on it, in T-Mazes of 500 to 20,000 steps, with gradients through 20.
#   bash examples/experiments/scaling.sh --local --small
#   LENGTHS="500 1000 5000 10000 20000" SEEDS="0 1 2" UPDATES=15000 STEPS=60000000 bash ...

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  detect=() play=()
  case "$1" in
    full) : "${LENGTHS:=500 1000 5000 10000 20000}" "${SEEDS:=0 1 2}" "${UPDATES:=15000}" "${STEPS:=60000000}" ;;
    small)
      : "${LENGTHS:=50 100 200}" "${SEEDS:=0}" "${UPDATES:=4000}" "${STEPS:=600000}"
      detect=(--updates 300)
      ;;
    tiny)
      : "${LENGTHS:=20 40}" "${SEEDS:=0}" "${UPDATES:=4}" "${STEPS:=400}"
      detect=(--updates 20) play=(--envs 4 --iteration-steps 200)
      ;;
  esac
}

cells() {
  local length seed
  for length in $LENGTHS; do
    for seed in $SEEDS; do echo "tmaze-$length seed$seed"; done
  done
}

cell() {
  stage collect tmaze --length "${1#tmaze-}"
  stage score "${detect[@]}"
  stage train-memory --rollout 20 --updates "$UPDATES" --until "rmse<0.1"
  stage evaluate memory
  stage train-agent --agent ppo --steps "$STEPS" --until "success>=0.99" "${play[@]}"
  stage evaluate agent --agent ppo --episodes 200
}

main scaling "$@"
