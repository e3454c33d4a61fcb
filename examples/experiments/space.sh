#!/usr/bin/env bash
# The paper's space complexity, measured: what one update keeps for its backward pass, over the length T of copy. MemUP
# keeps O(K + r) whatever T is, methods that go through the whole sequence O(T) or more. One update each; a method that
# does not fit into memory is shown as predicted.
#   bash examples/experiments/space.sh --local --small
#   LENGTHS="120 520 1020 5020" MODELS="lstm srnn transformer" BATCH=64 bash ...

# shellcheck source=SCRIPTDIR/cells.sh
. "$(dirname "$0")/cells.sh"

settings() {
  : "${MODELS:=lstm srnn transformer}"
  case "$1" in
    full) : "${LENGTHS:=120 520 1020 5020 20020}" "${BATCH:=64}" ;;
    small) : "${LENGTHS:=120 320 520 1020}" "${BATCH:=4}" ;;
    tiny) : "${LENGTHS:=30 60}" "${BATCH:=2}" ;;
  esac
}

cells() {
  local length
  for length in $LENGTHS; do echo "copy-$length seed0"; done
}

cell() {
  local model
  stage collect copy --length "${1#copy-}" --episodes "$((2 * BATCH))" --test-episodes 1
  # What the plan makes depend on the length is the same for all here, so that nothing but T changes.
  stage train-memory --rollout 20 --starts 0 --scores online --batch "$BATCH" --updates 1
  for model in $MODELS; do
    stage train-baseline --model "$model" --batch "$BATCH" --updates 1
  done
}

main space "$@"
