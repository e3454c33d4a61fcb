#!/usr/bin/env bash
# Two-Colors from nothing: collect games, train a memory of the healing color, and an agent that uses it, beside the
# same agent without a memory.
#   bash examples/two_colors.sh                 sizes for two CPU cores: two hours or more
#   SIZE=small bash examples/two_colors.sh      minutes; shows the way, learns little
#   SIZE=paper DEVICE=cuda bash ...             the paper's sizes, for a GPU
#   SEED=1 OUT=runs/colors STEPS=500000 bash ...
# Interrupted, the same command goes on where it was. OUT/memory and OUT/none are the two runs.
set -euo pipefail
seed="${SEED:-0}"
out="${OUT:-runs/two-colors}"
device="${DEVICE:-auto}"
case "${SIZE:-cpu}" in
  small) episodes=40 test=8  updates=60   hidden=32  steps=4000    more="--envs 2 --iteration-steps 1000 --imitate 1" ;;
  cpu)   episodes=1000 test=100 updates=4000 hidden=128 steps=750000 more="" ;;
  paper) episodes=10000 test=200 updates=100000 hidden=256 steps=10000000 more="--envs 32 --iteration-steps 32768 --eyes own" ;;
  *) echo "SIZE is ${SIZE}; it can be small, cpu or paper" >&2; exit 2 ;;
esac
mkdir -p "$out"

memup collect two-colors --episodes "$episodes" --test-episodes "$test" --seed "$seed" --run "$out/memory"
memup score --seed "$seed" --device "$device" --run "$out/memory"
# The same games for both runs; the stages after the scores differ.
if [ ! -e "$out/none/manifest.json" ]; then
  rm -rf "$out/none.part"
  cp -rl "$out/memory" "$out/none.part" 2>/dev/null || cp -r "$out/memory" "$out/none.part"
  mv "$out/none.part" "$out/none"
fi
for cell in lstm none; do
  run="$out/$([ "$cell" = lstm ] && echo memory || echo none)"
  size="$([ "$cell" = lstm ] && echo --hidden "$hidden" || true)"
  # shellcheck disable=SC2086
  memup train-memory --cell "$cell" $size --updates "$updates" --seed "$seed" --device "$device" --run "$run"
  memup evaluate memory --device "$device" --run "$run"
  # shellcheck disable=SC2086
  memup train-agent --agent ppo --steps "${STEPS:-$steps}" $more --seed "$seed" --device "$device" --run "$run"
  memup evaluate agent --agent ppo --episodes "$test" --envs 8 --record "$run/play.png" --device "$device" --run "$run"
done
