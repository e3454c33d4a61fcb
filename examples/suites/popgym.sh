#!/usr/bin/env bash
# POPGym (Morad et al., ICLR 2023), but for the labyrinths, which need more. Needs `pip install --no-deps popgym`.
#   bash examples/suites/popgym.sh --local --small

# shellcheck source=SCRIPTDIR/suite.sh
. "$(dirname "$0")/suite.sh"

module=popgym before=popgym- after=-v0
kinds=(RepeatFirst RepeatPrevious Autoencode CountRecall Concentration HigherLower MultiarmedBandit Battleship MineSweeper)
kinds+=({,Noisy}PositionOnlyCartPole VelocityOnlyCartpole {,Noisy}PositionOnlyPendulum)
FEW="${kinds[*]/%/Easy}"
ALL="$FEW ${kinds[*]/%/Medium} ${kinds[*]/%/Hard}"

main popgym "$@"
