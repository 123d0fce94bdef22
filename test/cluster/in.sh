#!/usr/bin/env bash
# Runs a command in the namespaces of the control plane, or of a node: in.sh control-plane|NODE COMMAND...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

export PATH KUBECONFIG=$STATE/access/admin.kubeconfig
# nsenter enters the cgroup namespace and not the cgroups. From outside of them the command would see "/..".
while read -r folder; do
	echo $$ >"$folder/cgroup.procs"
done <"$STATE/cgroups"
enter() {
	printf '%s\n' nsenter --target "$1" --mount --net --pid --uts --ipc --cgroup "--wd=$PWD"
}
mapfile -t command < <(enter "$(cat "$STATE/pid")")
if [[ $1 != control-plane ]]; then
	mapfile -t -O "${#command[@]}" command < <(enter "$(cat "$STATE/$1/pid")")
fi
exec "${command[@]}" "${@:2}"
