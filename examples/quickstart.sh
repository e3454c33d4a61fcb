#!/usr/bin/env bash
# From nothing to a filled, checked trajectory store: 1,100 episodes of a T-Maze of 20,000 steps, 22 million steps.
set -euo pipefail
export MEMUP_RUN="${MEMUP_RUN:-runs/quickstart}"

memup collect tmaze --length 20000
memup status
memup inspect
memup verify

echo
echo "The store is in $MEMUP_RUN/trajectories: plain Zarr v3 groups that zarr.open_group reads."
echo "What was done, with what and from what, is in $MEMUP_RUN/manifest.json."
