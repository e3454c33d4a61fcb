#!/usr/bin/env bash
# T-Maze solved by agents on the frozen memory, from nothing: collect, score, train-memory, train-agent, evaluate.
#   bash examples/experiments/solve_with_agents.sh                        T-Maze-1000, PPO and QR-DQN, three seeds
#   LENGTH=20000 SEEDS=0 AGENTS=ppo STEPS=40000000 bash ...   the long one
# Interrupted runs continue when it is started again.
set -euo pipefail
out="${OUT:-runs/agents}"
length="${LENGTH:-1000}"

for seed in ${SEEDS:-0 1 2}; do
  export MEMUP_RUN="$out/tmaze-$length-seed$seed"
  memup collect tmaze --length "$length" --seed "$seed" --quiet > /dev/null
  memup score --seed "$seed" --quiet > /dev/null
  memup train-memory --seed "$seed" --updates 15000 --until-rmse 0.1 --quiet > /dev/null
  for agent in ${AGENTS:-ppo qrdqn}; do
    memup train-agent --agent "$agent" --seed "$seed" --steps "${STEPS:-3000000}" --until-success 0.99 --quiet > /dev/null
    memup evaluate agent --agent "$agent" --episodes 200 --seed "$seed" --quiet --json > /dev/null
    python - "$MEMUP_RUN" "$agent" <<'PY'
import json, sys
run, agent = sys.argv[1:]
trained = json.load(open(f"{run}/manifest.json"))["stages"][f"train-agent/{agent}"]["metrics"]
found = json.load(open(f"{run}/evaluation/agent-{agent}.json"))
low, high = found["interval"]
print(f"{run.rsplit('/', 1)[1]:24} {agent:6} success {found['success_rate']:6.1%} ({low:.1%} to {high:.1%})  "
      f"stochastic {found['stochastic']['success_rate']:6.1%}  {trained['steps']:11,} steps in "
      f"{trained['seconds']:5.0f} s  {trained['peak_rss_bytes'] / 1e6:5.0f} MB", flush=True)
PY
  done
done
