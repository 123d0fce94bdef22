#!/usr/bin/env bash
# Starts a node, such as n1. It runs in the namespaces of the control plane.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

node=$1 folder=$STATE/$1
mkdir -p "$folder"/{log,cni,etc,work} "$folder"/disk/{etc/kubernetes/manifests,var/lib/kubelet,var/log}
make_cgroups "$node" >"$folder/cgroups"
rm -f "$folder/linked"
spawn "$folder/cgroups" "$folder/log/node.log" "$here/node.sh" "$node" >"$folder/pid" # as the control plane counts
ip link add "to-$node" type veth peer name uplink netns "$(cat "$folder/pid")"
ip link set "to-$node" master nodes up
touch "$folder/linked"
