#!/usr/bin/env bash
# Ends a cluster and removes all of it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

pid=$(cat "$STATE/pid" 2>/dev/null || true)
if [[ -n $pid && -d /proc/$pid ]] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q control-plane.sh; then
	kill -KILL "$pid"
	while [[ -d /proc/$pid ]]; do
		sleep 0.05
	done
fi
if [[ -e $STATE/cgroups ]]; then
	remove_cgroups "$STATE/cgroups"
fi
rm -rf --one-file-system "$STATE"
