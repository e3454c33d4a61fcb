#!/usr/bin/env bash
# The paper's figure "T-Maze-LNR-1000": agents on a MemUP memory against agents that remember by themselves.
#   bash examples/rl_comparison.sh                     a table, and learning curves in runs/rl_comparison/curves.png
#   SEEDS="0 1 2" STEPS=3000000 bash ...               as many seeds and environment steps as you have time for
#   LENGTH=10 bash ...                                 where the baselines do well, too
# ROLLOUTS are the baselines' gradient lengths, SPANS the transformer's attention. Interrupted runs continue.
set -euo pipefail
out="${OUT:-runs/rl_comparison}"
length="${LENGTH:-1000}"
steps="${STEPS:-3000000}"
baseline_steps="${BASELINE_STEPS:-$steps}"
here="$(cd "$(dirname "$0")" && pwd)"

train() { # RUN AGENT [OPTIONS...]
  local run="$1" agent="$2"
  shift 2
  memup train-agent --run "$run" --agent "$agent" --seed "$seed" "$@" --quiet > /dev/null
  memup evaluate agent --run "$run" --agent "$agent" --seed "$seed" --episodes 200 --quiet --json > /dev/null
}

for seed in ${SEEDS:-0}; do
  run="$out/memup-seed$seed"
  memup collect tmaze --length "$length" --seed "$seed" --run "$run" --quiet > /dev/null
  memup score --run "$run" --seed "$seed" --quiet > /dev/null
  memup train-memory --run "$run" --seed "$seed" --updates 15000 --until-rmse 0.1 --quiet > /dev/null
  for agent in ppo qrdqn; do
    train "$run" "$agent" --steps "$steps" --until-success 0.99
  done
  for rollout in ${ROLLOUTS:-128 1000}; do
    run="$out/rollout$rollout-seed$seed"
    memup collect tmaze --length "$length" --episodes 1 --test-episodes 0 --seed "$seed" --run "$run" --quiet > /dev/null
    for agent in ppo-lstm amrl; do
      train "$run" "$agent" --rollout "$rollout" --steps "$baseline_steps" --until-success 0.99
    done
  done
  for span in ${SPANS:-64}; do
    run="$out/span$span-seed$seed"
    memup collect tmaze --length "$length" --episodes 1 --test-episodes 0 --seed "$seed" --run "$run" --quiet > /dev/null
    train "$run" gtrxl --span "$span" --rollout "$span" --steps "$baseline_steps" --until-success 0.99
  done
done

python "$here/experiments/rl_figure.py" "$out"
