# shellcheck shell=bash
# What the experiments beside this file share: each is a number of independent cells, and a figure of all of them.
#   script.sh                submit a Slurm job array, one task a cell, and the figure after it
#   script.sh --local        the same here, one cell after the other
#   script.sh --cell N       only cell N;   --list shows them
#   script.sh --figure       only the figure, of the cells that are there
#   script.sh --small ...    sizes for minutes instead of days (--tiny: seconds, shows nothing)
# Cells are runs below OUT (default runs/NAME, runs/NAME-small). Finished stages are up to date, interrupted ones
# continue. PARTITION, TIME, CPUS, SBATCH and ARRAY are those of ../slurm; MEMUP_DEVICE and so on those of memup.

# A script sources this, defines three functions, and ends with `main NAME "$@"`:
#   settings SIZE    full, small or tiny: sets what the caller's environment has not set
#   cells            prints one line a cell: words, the last one seedN; joined, they name its run
#   cell WORDS...    the memup commands of one; MEMUP_RUN and MEMUP_SEED are set
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
script="$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"
stopped=

# A stage of the cell; of its result one line is shown. A warning of the queue reaches this shell as well as memup, which
# saves and exits with 75. (Not in a pipe or $(): the warning would end what is at the other end.)
stage() {
  [ -z "$stopped" ] || exit 75
  memup "$@" > "$result"
  head -n 1 "$result" >&2
}

run_cell() { # WORDS...
  local line="$*"
  export MEMUP_RUN="$out/${line// /-}" MEMUP_SEED="${line##*seed}"
  result="$(mktemp)"
  trap 'rm -f "$result"' EXIT
  trap 'stopped=yes' TERM USR2
  echo "== $line" >&2
  cell "$@"
}

run_here() {
  local number code failed=()
  for number in "${!lines[@]}"; do
    code=0
    bash "$script" "${flags[@]}" --cell "$number" || code=$?
    case "$code" in
      0) ;;
      75 | 130) exit "$code" ;; # stopped: the same command continues
      *) failed+=("$number") ;;
    esac
  done
  figure
  if [ "${#failed[@]}" -gt 0 ]; then
    echo "${#failed[@]} of ${#lines[@]} cells failed: ${failed[*]}. To try one again: bash $script ${flags[*]} --cell ${failed[0]}" >&2
    exit 1
  fi
}

# The figure comes last: what it needs is asked for before all that is trained for it.
drawable() {
  python -c 'import matplotlib' 2> /dev/null || { echo "the figure needs matplotlib: pip install 'memup[plots]'" >&2; exit 2; }
}

figure() {
  local manifests=("$out"/*/manifest.json)
  [ -e "${manifests[0]}" ] || { echo "there are no runs below $out; run some cells first" >&2; exit 3; }
  python "$here/figures" "$experiment" "$out"
  memup report "${manifests[@]%/manifest.json}" --output "$out/report.html"
}

submit() {
  local program queued job
  place="$(realpath -m "$out")"
  export place
  for program in sbatch memup; do
    command -v "$program" > /dev/null || { echo "there is no $program on the PATH; --local runs the cells here" >&2; exit 2; }
  done
  queued="$(squeue --noheader --user="$(id -un)" --format='%F %k' | awk '{ id = $1; sub(/^[^ ]* /, "") } $0 == ENVIRON["place"] { print id }' | sort -un | xargs)"
  if [ -n "$queued" ]; then
    echo "jobs of $out are in the queue already: $queued. To give them up: scancel $queued" >&2
    exit 2
  fi
  mkdir -p "$out/logs"
  # shellcheck disable=SC2206  # the options are words
  local options=(${PARTITION:+--partition="$PARTITION"} --parsable --job-name="$(basename "$out")" --comment="$place" ${SBATCH-})
  job="$(CELLS="$script" sbatch "${options[@]}" --array="${ARRAY:-0-$((${#lines[@]} - 1))}" ${TIME:+--time="$TIME"} \
    --cpus-per-task="${CPUS:-1}" --output="$out/logs/%a.log" "$here/../slurm/stage.sbatch" "${flags[@]}" | cut -d';' -f1)"
  echo "${#lines[@]} cells   job $job   $out/logs/*.log"
  job="$(sbatch "${options[@]}" --dependency="afterany:$job" --output="$out/logs/figure.log" \
    --wrap "bash $(printf '%q ' "$script" "${flags[@]}")--figure" | cut -d';' -f1)"
  echo "figure   job $job   $out/figure.png, table.md and report.html"
}

main() { # NAME OPTIONS...
  local action=submit number='' size=full
  experiment="$1" flags=()
  shift
  while [ $# -gt 0 ]; do
    case "$1" in
      --small | --tiny) size="${1#--}" flags=("$1") ;;
      --local | --figure | --list) action="${1#--}" ;;
      --cell) action=cell number="${2-}"; shift "$(($# > 1))" ;;
      -h | --help) sed -sn '2,/^\([^#]\|$\)/s/^# \{0,1\}//p' "$script" "$here/cells.sh"; exit ;;
      *) echo "unknown option $1; --help says more" >&2; exit 2 ;;
    esac
    shift
  done
  out="${OUT:-runs/$experiment${flags[*]:+-$size}}"
  settings "$size"
  mapfile -t lines < <(cells)
  case "$action" in
    submit) drawable; submit ;;
    local) drawable; run_here ;;
    figure) drawable; figure ;;
    list) for number in "${!lines[@]}"; do echo "$number  ${lines[number]}"; done ;;
    cell)
      if ! [[ "$number" =~ ^[0-9]+$ ]] || [ "$number" -ge "${#lines[@]}" ]; then
        echo "--cell $number: give a number from 0 to $((${#lines[@]} - 1)); --list shows them" >&2
        exit 2
      fi
      # shellcheck disable=SC2086  # the cell is words
      run_cell ${lines[number]}
      ;;
  esac
}
