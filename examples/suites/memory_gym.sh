#!/usr/bin/env bash
# Memory Gym (Pleines et al., ICLR 2023): three tasks on a grid. They are images: plan a GPU for
# the full size. Needs `pip install pygame` and `pip install --no-deps memory-gym`.
#   bash examples/suites/memory_gym.sh --local --small

# shellcheck source=SCRIPTDIR/suite.sh
. "$(dirname "$0")/suite.sh"

module=memory_gym before='' after=-v0
ALL="MysteryPath-Grid MortarMayhem-Grid MortarMayhemB-Grid"
FEW="MysteryPath-Grid"
export SDL_VIDEODRIVER="${SDL_VIDEODRIVER-dummy}" SDL_AUDIODRIVER="${SDL_AUDIODRIVER-dummy}"

main memory_gym "$@"
