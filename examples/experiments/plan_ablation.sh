#!/usr/bin/env bash
# What each part of the plan is good for: tasks that nobody tuned for, and two mazes, each trained as it is planned and
# with one part left out. Shown are the updates until 95% is explained on validation episodes, and what is explained of
# test episodes in the end.
#   bash examples/experiments/plan_ablation.sh --local --small
#   TASKS="match marks count kept recent tmaze" PARTS="planned gates walk replay arrivals average spread plan" UPDATES=3000 SEEDS="0 1 2" bash ...
# OWN_LENGTH: steps of an episode of the tasks in own_tasks.py; LENGTH: of a maze.

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  detect=()
  : "${TASKS:=match marks count kept recent tmaze}" "${PARTS:=planned gates walk replay arrivals average spread plan}"
  case "$1" in
    full) : "${OWN_LENGTH:=2000}" "${LENGTH:=20000}" "${EPISODES:=1000}" "${UPDATES:=10000}" "${EVERY:=250}" "${SEEDS:=0 1 2}" ;;
    small) : "${OWN_LENGTH:=400}" "${LENGTH:=1000}" "${EPISODES:=1000}" "${UPDATES:=3000}" "${EVERY:=250}" "${SEEDS:=0}" ;;
    tiny)
      : "${OWN_LENGTH:=40}" "${LENGTH:=40}" "${EPISODES:=60}" "${UPDATES:=4}" "${EVERY:=2}" "${SEEDS:=0}"
      detect=(--updates 20)
      ;;
  esac
  export OWN_LENGTH
}

cells() {
  local task part seed
  for task in $TASKS; do
    for part in $PARTS; do
      for seed in $SEEDS; do echo "$task $part seed$seed"; done
    done
  done
}

cell() {
  local -A without=(
    [planned]="" [gates]="--no-novelty-gates" [walk]="--rollout-sampling all" [replay]="--replay 0"
    [arrivals]="--no-at-targets" [average]="--average 0" [spread]="--spread fixed" [plan]="--preset paper"
  )
  if [ "$1" = tmaze ]; then
    stage collect tmaze --length "$LENGTH" --episodes "$EPISODES"
  else
    stage collect gym --import "$here/own_tasks.py" --env-id "own/${1^}-v0" --episodes "$EPISODES"
  fi
  stage score "${detect[@]}"
  # shellcheck disable=SC2086  # the option is words
  stage train-memory ${without[$2]} --updates "$UPDATES" --evaluate-every "$EVERY"
  stage evaluate memory
}

main plan_ablation "$@"
