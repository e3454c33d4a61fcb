#!/usr/bin/env bash
# T-Maze solved by memory alone: one run per seed and setting, from nothing, and a table at the end.
#   bash examples/experiments/solve_tmaze.sh            three seeds of every setting
#   SEEDS="0" SETTINGS="1000:20" bash ...               some of it
# A setting is LENGTH:ROLLOUT[:DISTRACTORS:TARGETS[:MAX_UPDATES]]. Interrupted runs continue when it is started again.
set -euo pipefail
out="${OUT:-runs/solve_tmaze}"
seeds="${SEEDS:-0 1 2}"
settings="${SETTINGS:-1000:1:0:1:10000 1000:20:0:1:10000 20000:20:0:1:15000 100:20:4:3:15000}"

for setting in $settings; do
  IFS=: read -r length rollout distractors targets updates <<< "$setting:::"
  distractors="${distractors:-0}"; targets="${targets:-1}"; updates="${updates:-10000}"; updates="${updates%%:*}"
  for seed in $seeds; do
    export MEMUP_RUN="$out/tmaze-$length-d$distractors-r$rollout-k$targets-seed$seed"
    memup collect tmaze --length "$length" --distractors "$distractors" --seed "$seed" --quiet > /dev/null
    memup score --seed "$seed" --quiet > /dev/null
    memup train-memory --seed "$seed" --rollout "$rollout" --targets "$targets" --updates "$updates" \
      --until-rmse 0.1 --quiet --json > "$MEMUP_RUN/train.json.new" && mv "$MEMUP_RUN/train.json.new" "$MEMUP_RUN/train.json"
    memup evaluate memory --json --quiet > /dev/null
    python - "$MEMUP_RUN" <<'PY'
import json, sys
run = sys.argv[1]
train = json.load(open(f"{run}/manifest.json"))["stages"]["train-memory"]
found = json.load(open(f"{run}/evaluation/memory.json"))
low, high = found["interval"]
m = train["metrics"]
print(f"{run.rsplit('/', 1)[1]:38} test RMSE {found['rmse']:.4f} ({low:.4f} to {high:.4f})  "
      f"{m['updates']:6,} updates at {m['updates_per_second']:4.0f}/s  "
      f"{'solved' if found['rmse'] < 0.1 else 'NOT SOLVED'}", flush=True)
PY
  done
done
