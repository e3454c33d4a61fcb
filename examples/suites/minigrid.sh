#!/usr/bin/env bash
# MiniGrid (Chevalier-Boisvert et al., NeurIPS 2023): its tasks that ask for a memory. Needs `pip install --no-deps
# minigrid`. TASKS takes any other of its tasks, too, such as DoorKey-8x8.
#   bash examples/suites/minigrid.sh --local --small

# shellcheck source=SCRIPTDIR/suite.sh
. "$(dirname "$0")/suite.sh"

module=minigrid before=MiniGrid- after=-v0
ALL="MemoryS7 MemoryS9 MemoryS11 MemoryS13 MemoryS13Random MemoryS17Random RedBlueDoors-6x6 RedBlueDoors-8x8"
FEW="MemoryS7 RedBlueDoors-6x6"

main minigrid "$@"
