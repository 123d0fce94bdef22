#!/usr/bin/env bash
# Starts a control plane and its nodes, each in its own network, mount, pid, uts, ipc and cgroup namespaces, and returns when all
# nodes are ready. The host can neither see nor reach them; they end with process 1 of the control plane.
#
# $STATE/access must contain the certificates and kubeconfigs. File 3 is a pipe: when its other end is closed, the cluster ends.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

mkdir -p "$STATE"/{log,etcd,volumes}
make_cgroups "etcd-dr-$$" >"$STATE/cgroups"
spawn "$STATE/cgroups" "$STATE/log/control-plane.log" "$here/control-plane.sh" >"$STATE/pid"
for _ in {1..6000}; do
	if [[ -e $STATE/ready ]]; then
		exit 0
	fi
	if [[ ! -d /proc/$(cat "$STATE/pid") ]]; then
		break
	fi
	sleep 0.1
done
tail -n 30 "$STATE"/log/control-plane.log "$STATE"/n*/log/node.log >&2
exit 1
