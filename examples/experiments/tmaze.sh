#!/usr/bin/env bash
# The paper's figure "T-Maze-LNR-1000": agents on a MemUP memory against agents that remember by themselves.
#   bash examples/experiments/tmaze.sh --local --small
#   SEEDS="0 1 2" STEPS=3000000 bash ...               as many seeds and environment steps as you have time for
#   METHODS="ppo qrdqn ppo-lstm-128 ppo-lstm-1000 amrl-128 amrl-1000 gtrxl-64" LENGTH=10 bash ...
# The number of a baseline is how many steps its gradients flow through, or the transformer's attention sees.

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  detect=() play=()
  case "$1" in
    full)
      : "${METHODS:=ppo qrdqn ppo-lstm-128 ppo-lstm-1000 amrl-128 amrl-1000 gtrxl-64}" "${SEEDS:=0 1 2}"
      : "${LENGTH:=1000}" "${UPDATES:=15000}" "${STEPS:=3000000}"
      ;;
    small)
      : "${METHODS:=ppo qrdqn ppo-lstm-16 amrl-16 gtrxl-16}" "${SEEDS:=0}"
      : "${LENGTH:=100}" "${UPDATES:=4000}" "${STEPS:=200000}"
      detect=(--updates 300)
      ;;
    tiny)
      : "${METHODS:=ppo amrl-8 gtrxl-8}" "${SEEDS:=0}" "${LENGTH:=20}" "${UPDATES:=4}" "${STEPS:=400}"
      detect=(--updates 20) play=(--envs 4 --iteration-steps 200)
      ;;
  esac
}

cells() {
  local method seed
  for method in $METHODS; do
    for seed in $SEEDS; do echo "$method seed$seed"; done
  done
}

cell() {
  local agent="$1" reach=()
  case "$1" in
    ppo | qrdqn)
      stage collect tmaze --length "$LENGTH"
      stage score "${detect[@]}"
      stage train-memory --updates "$UPDATES" --until "rmse<0.1"
      stage evaluate memory
      ;;
    *)
      agent="${1%-*}" reach=(--rollout "${1##*-}")
      [ "$agent" != gtrxl ] || reach+=(--span "${1##*-}")
      stage collect tmaze --length "$LENGTH" --episodes 1 --test-episodes 0
      ;;
  esac
  stage train-agent --agent "$agent" --steps "$STEPS" --until "success>=0.99" "${reach[@]}" "${play[@]}"
  stage evaluate agent --agent "$agent" --episodes 200
}

main tmaze "$@"
