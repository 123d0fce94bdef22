#!/usr/bin/env bash
# Kills a node, as a power cut does. Its disk stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

pid=$(cat "$STATE/$1/pid")
kill -KILL "$pid"
while [[ -d /proc/$pid ]]; do
	sleep 0.05
done
remove_cgroups "$STATE/$1/cgroups"
