#!/usr/bin/env bash
# POPGym (Morad et al., ICLR 2023): the tasks whose actions memup takes. Needs `pip install --no-deps popgym`.
#   bash examples/suites/popgym.sh --local --small
# Not among them: Battleship and MineSweeper (actions of two numbers), and the labyrinths (another package).

# shellcheck source=SCRIPTDIR/suite.sh
. "$(dirname "$0")/suite.sh"

module=popgym before=popgym- after=-v0
kinds=(RepeatFirst RepeatPrevious Autoencode CountRecall Concentration HigherLower MultiarmedBandit)
kinds+=({,Noisy}PositionOnlyCartPole VelocityOnlyCartpole {,Noisy}PositionOnlyPendulum)
FEW="${kinds[*]/%/Easy}"
ALL="$FEW ${kinds[*]/%/Medium} ${kinds[*]/%/Hard}"

main popgym "$@"
