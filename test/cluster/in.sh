#!/usr/bin/env bash
# Runs a command in the namespaces of the control plane, or of a node: in.sh control-plane|NODE COMMAND... Tests do that often, so it starts
# no process of its own.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/lib.sh"

export PATH KUBECONFIG=$STATE/access/admin.kubeconfig
# nsenter enters the cgroup namespace and not the cgroups. From outside of them the command would see "/..".
while read -r folder; do
	echo $$ >"$folder/cgroup.procs"
done <"$STATE/cgroups"

command=()
# enter adds to the command that it enters the namespaces of the process whose pid is in a file.
enter() {
	local pid
	read -r pid <"$1"
	command+=(nsenter --target "$pid" --mount --net --pid --uts --ipc --cgroup "--wd=$PWD")
}
enter "$STATE/pid"
if [[ $1 != control-plane ]]; then
	enter "$STATE/$1/pid"
fi
exec "${command[@]}" "${@:2}"
