#!/usr/bin/env bash
# The paper's heat map: updates until the memory is right at the junction (RMSE below 0.1), in a maze of 100 steps with D
# more decision points that pay at random, and K targets. The rollout is one step, as in the paper. Of its 5 x 5 values
# the paper's text names D = 19 and K = 1, 2 and 3; the others are chosen here.
#   bash examples/experiments/noisy_tv.sh --local --small
#   DISTRACTORS="0 4 9 14 19" TARGETS="1 2 3 4 5" ROLLOUT=1 UPDATES=45000 SEEDS="0 1 2" bash ...
#   SELECTIONS="surprise utility" bash ...             beside it, targets that the past can explain (not in the paper)

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  detect=()
  : "${SELECTIONS:=surprise}"
  case "$1" in
    full)
      : "${DISTRACTORS:=0 4 9 14 19}" "${TARGETS:=1 2 3 4 5}" "${ROLLOUT:=1}" "${SEEDS:=0 1 2 3 4 5}"
      : "${LENGTH:=100}" "${UPDATES:=45000}" "${EVERY:=500}"
      ;;
    small)
      : "${DISTRACTORS:=0 1 3}" "${TARGETS:=1 3}" "${ROLLOUT:=10}" "${SEEDS:=0}"
      : "${LENGTH:=60}" "${UPDATES:=1500}" "${EVERY:=50}"
      detect=(--updates 400)
      ;;
    tiny)
      : "${DISTRACTORS:=1}" "${TARGETS:=1 2}" "${ROLLOUT:=5}" "${SEEDS:=0}" "${LENGTH:=60}" "${UPDATES:=4}" "${EVERY:=4}"
      detect=(--updates 20)
      ;;
  esac
}

cells() {
  local d k select seed
  for d in $DISTRACTORS; do
    for k in $TARGETS; do
      for select in $SELECTIONS; do
        for seed in $SEEDS; do echo "d$d k$k $select seed$seed"; done
      done
    done
  done
}

cell() {
  stage collect tmaze --length "$LENGTH" --distractors "${1#d}"
  [ "$3" != utility ] || detect+=(--detector probe)
  stage score "${detect[@]}"
  stage train-memory --select "$3" --targets "${2#k}" --rollout "$ROLLOUT" --updates "$UPDATES" \
    --evaluate-every "$EVERY" --until "rmse<0.1"
  stage evaluate memory
}

main noisy_tv "$@"
