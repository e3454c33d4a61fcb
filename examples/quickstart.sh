#!/usr/bin/env bash
# From nothing to a solved T-Maze: a memory that keeps a hint over 1,000 steps, with gradients through 20, and an agent
# that acts on it.
set -euo pipefail
export MEMUP_RUN="${MEMUP_RUN:-runs/quickstart}"

memup collect tmaze --length 1000
memup inspect
memup score
memup train-memory --rollout 20 --until "rmse<0.1"
memup evaluate memory
memup train-agent --agent ppo --until "success>=0.99"
memup evaluate agent
memup status
memup report "$MEMUP_RUN"

echo
echo "The results, with curves and an episode step by step: open $MEMUP_RUN/report.html in a browser."
echo "The store is in $MEMUP_RUN/trajectories: plain Zarr v3 groups that zarr.open_group reads."
echo "Weights are in $MEMUP_RUN/memory and $MEMUP_RUN/agent, learning curves in $MEMUP_RUN/logs/*/metrics.jsonl"
echo "(or: tensorboard --logdir $MEMUP_RUN/logs). What was done, with what and from what: $MEMUP_RUN/manifest.json"
