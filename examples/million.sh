#!/usr/bin/env bash
# A hint at the first step, and the turn that it tells a million steps later: from data to an agent, on two CPU cores.
#   bash examples/million.sh
#   MEMUP_COLLECT_EPISODES=64 LENGTH=100000 bash ...     smaller; all options of memup go this way
#   LENGTH=10000000 SEED=1 OUT=runs/ten-million AGENT=no bash ...     AGENT=no: only the memory
# Interrupted runs continue; what is done is not done again.
set -euo pipefail
: "${LENGTH:=1000000}" "${SEED:=0}" "${OUT:=runs/tmaze-$LENGTH}" "${AGENT:=yes}"
memup collect tmaze --length "$LENGTH" --seed "$SEED" --run "$OUT"
memup score --run "$OUT"
memup train-memory --run "$OUT" --until "rmse<0.1"
memup evaluate memory --run "$OUT"
if [ "$AGENT" = yes ]; then
  memup train-agent --agent ppo --run "$OUT"
  memup evaluate agent --run "$OUT" --episodes 50
fi
memup report "$OUT"
