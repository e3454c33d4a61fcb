# shellcheck shell=bash
# What the suites beside this file share. A cell is a task and a seed: its episodes, their scores, the memory, PPO on the
# memory, and ppo-lstm, which remembers by itself, for as many steps. No task has options of its own.
#   TASKS="..." SEEDS="0 1 2" STEPS=3000000 bash ...   which tasks, and as many environment steps as you have time for
#   EPISODES=1000 UPDATES=2000 bash ...                instead of what collect and the plan say
# A suite sources this, sets `module` (what to import), `before` and `after` (of a task's name in its id), ALL and FEW
# (tasks, for the full and for smaller sizes), and ends with `main NAME "$@"`.

# shellcheck source=SCRIPTDIR/../experiments/cells.sh
. "$(dirname "${BASH_SOURCE[0]}")/../experiments/cells.sh"

settings() {
  detect=() play=() judge=(--episodes 100)
  case "$1" in
    full) : "${TASKS:=$ALL}" "${SEEDS:=0 1 2}" "${STEPS:=3000000}" ;;
    small)
      : "${TASKS:=$FEW}" "${SEEDS:=0}" "${STEPS:=100000}" "${EPISODES:=500}" "${UPDATES:=1000}"
      detect=(--updates 300)
      ;;
    tiny)
      : "${TASKS:=${FEW%% *}}" "${SEEDS:=0}" "${STEPS:=400}" "${EPISODES:=20}" "${UPDATES:=4}"
      detect=(--updates 20) play=(--envs 4 --iteration-steps 200) judge=(--episodes 8)
      ;;
  esac
}

cells() {
  local task seed
  for task in $TASKS; do
    for seed in $SEEDS; do echo "$task seed$seed"; done
  done
}

cell() {
  local agent
  stage collect gym --import "$module" --env-id "$before$1$after" ${EPISODES:+--episodes "$EPISODES"}
  stage score "${detect[@]}"
  stage train-memory ${UPDATES:+--updates "$UPDATES"}
  stage evaluate memory
  for agent in ppo ppo-lstm; do
    stage train-agent --agent "$agent" --steps "$STEPS" "${play[@]}"
    stage evaluate agent --agent "$agent" "${judge[@]}"
  done
}
