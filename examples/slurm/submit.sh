#!/usr/bin/env bash
# The whole pipeline as Slurm jobs: a job array collects, then one stage waits for the other.
#   bash examples/slurm/submit.sh
#   TASK=tmaze LENGTH=20000 SHARDS=16 PARTITION=preemptible TIME=4:00:00 bash examples/slurm/submit.sh
# After a failure or a cancelled job, call it again in the same way: what is finished is finished at once, the rest
# continues. README.md beside this file has all variables.
set -euo pipefail
TASK="${TASK:-tmaze}"
LENGTH="${LENGTH-1000}"                          # empty for a task without --length
SHARDS="${SHARDS:-4}"                            # tasks of the job array
[[ "$SHARDS" =~ ^[1-9][0-9]*$ ]] || { echo "SHARDS is '$SHARDS'; it can be a number from 1 on" >&2; exit 2; }
ARRAY="${ARRAY:-0-$((SHARDS - 1))}"              # which of them to submit, such as 2,5-7
SEED="${SEED:-0}"
RUN="${RUN:-runs/$TASK${LENGTH:+-$LENGTH}}"
RUN="${RUN%/}"
LOGS="${LOGS:-$RUN-logs}"
AGENT="${AGENT-ppo}"                             # empty to end with the memory
COLLECT="${COLLECT-}"                            # more options of each stage
SCORE="${SCORE-}"
TRAIN_MEMORY="${TRAIN_MEMORY-}"
TRAIN_AGENT="${TRAIN_AGENT-}"
EVALUATE="${EVALUATE-}"
SBATCH="${SBATCH-}"                              # more options of every job, such as --account=physics
TRAIN_SBATCH="${TRAIN_SBATCH-}"                  # and of those that train, such as --gres=gpu:1
export SHARDS

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
name="$(basename "$RUN")"
for program in sbatch memup; do
  command -v "$program" >/dev/null || { echo "there is no $program on the PATH" >&2; exit 2; }
done

# Two chains on one run would take the work from each other. A job's comment says which run it is for.
place="$(realpath -m "$RUN")"
export place
queued="$(squeue --noheader --user="$(id -un)" --format='%F %k' | awk '{ id = $1; sub(/^[^ ]* /, "") } $0 == ENVIRON["place"] { print id }' | sort -un | xargs)"
if [ -n "$queued" ]; then
  echo "jobs of $RUN are in the queue already: $queued. To give them up: scancel $queued" >&2
  exit 2
fi
mkdir -p "$LOGS"

jobs=()
# submit STAGE LOG 'SBATCH OPTIONS' MEMUP ARGUMENTS...: the new job's id is the last of jobs
submit() {
  local stage="$1" log="$LOGS/$2" options="$3"
  shift 3
  # shellcheck disable=SC2086  # the options are words
  jobs+=("$(sbatch --parsable --job-name="$stage-$name" --comment="$place" --output="$log" --kill-on-invalid-dep=yes \
    ${PARTITION:+--partition="$PARTITION"} ${TIME:+--time="$TIME"} --cpus-per-task="${CPUS:-1}" $SBATCH $options \
    "$here/stage.sbatch" "$@" --run "$RUN" | cut -d';' -f1)")
  printf '%-16s job %-8s %s\n' "$stage" "${jobs[-1]}" "${log//%a/*}"
}
after() { echo "--dependency=$1:${jobs[-1]}"; }

# shellcheck disable=SC2086
{
  submit collect collect-%a.log "--array=$ARRAY" collect "$TASK" ${LENGTH:+--length "$LENGTH"} --seed "$SEED" $COLLECT
  # After any end of the array: should a task have failed, this one says in its log which shards are missing.
  submit score score.log "$(after afterany)" score --seed "$SEED" $SCORE
  submit train-memory train-memory.log "$(after afterok) $TRAIN_SBATCH" train-memory --seed "$SEED" $TRAIN_MEMORY
  submit evaluate-memory evaluate-memory.log "$(after afterok)" evaluate memory
  if [ -n "$AGENT" ]; then
    submit train-agent train-agent.log "$(after afterok) $TRAIN_SBATCH" \
      train-agent --agent "$AGENT" --seed "$SEED" $TRAIN_AGENT
    submit evaluate-agent evaluate-agent.log "$(after afterok)" evaluate agent --agent "$AGENT" $EVALUATE
  fi
}
echo
printf 'Look at them with: squeue --me        memup status --run %q        tail -n 5 %q/*.log\n' "$RUN" "$LOGS"
echo "Give them up with: scancel ${jobs[*]}"
