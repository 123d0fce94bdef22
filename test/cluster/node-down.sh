#!/usr/bin/env bash
# Ends a node, such as n1, with all its processes at once. Its disk stays. It runs in the namespaces of the control plane.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

folder=$STATE/$1
pid=$(cat "$folder/pid")
kill -KILL "$pid"
while [[ -d /proc/$pid ]]; do
	sleep 0.05
done
ip link delete "to-$1" 2>/dev/null || true # the kernel removes it too, but late
remove_cgroups "$folder/cgroups"
rm "$folder/pid"
