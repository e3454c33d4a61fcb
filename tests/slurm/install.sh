#!/usr/bin/env bash
# Installs Slurm's programs for `make test-slurm` if there are none. They start no service: the tests run daemons of
# their own, and end them.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
packages=(munge slurmctld slurmd slurm-client)
missing=()
for program in munged slurmctld slurmd sbatch srun setpriv; do
  command -v "$program" >/dev/null || missing+=("$program")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "the Slurm tests need ${missing[*]}. On Debian or Ubuntu: sudo apt-get install ${packages[*]}" >&2
  exit 1
fi
policy=/usr/sbin/policy-rc.d # while it says 101, packages do not start their services
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null; }
echo "installing ${packages[*]}"
install || { apt-get update -qq && install; }
