#!/usr/bin/env bash
# Process 1 of the control plane.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
logs=$STATE/log access=$STATE/access node=n1 # the proxy here has no Node of its own: it watches that of n1
export KUBECONFIG=$access/admin.kubeconfig

run_etcd() {
	exec etcd --name m --data-dir "$STATE/etcd" --log-level warn --unsafe-no-fsync \
		--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
		--listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster m=http://127.0.0.1:2380
}

run_kube-apiserver() {
	exec kube-apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address "$control_plane" \
		--tls-cert-file "$access/server.crt" --tls-private-key-file "$access/server.key" --client-ca-file "$access/ca.crt" \
		--kubelet-client-certificate "$access/admin.crt" --kubelet-client-key "$access/admin.key" \
		--kubelet-certificate-authority "$access/ca.crt" --kubelet-preferred-address-types InternalIP \
		--service-account-issuer https://kubernetes.default.svc.cluster.local \
		--service-account-key-file "$access/server.crt" --service-account-signing-key-file "$access/server.key" \
		--authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
		--service-cluster-ip-range "$service_range" --audit-policy-file "$here/audit.yaml" --audit-log-path "$logs/audit.json" \
		--default-not-ready-toleration-seconds 10 --default-unreachable-toleration-seconds 10
}

run_kube-controller-manager() {
	exec kube-controller-manager --kubeconfig "$access/controller-manager.kubeconfig" --leader-elect=false --bind-address 127.0.0.1 \
		--service-account-private-key-file "$access/server.key" --root-ca-file "$access/ca.crt" --use-service-account-credentials \
		--kube-api-qps 500 --kube-api-burst 1000 --enable-hostpath-provisioner --flex-volume-plugin-dir /run/flex \
		--node-monitor-period 2s --node-monitor-grace-period 12s
}

run_kube-scheduler() {
	exec kube-scheduler --kubeconfig "$access/scheduler.kubeconfig" --leader-elect=false --bind-address 127.0.0.1
}

run_dns() {
	exec dns -listen "$control_plane:53" -kubeconfig "$access/dns.kubeconfig"
}

api_servers_ready() {
	local address
	for address in "${api_servers[@]}"; do
		kubectl --server "https://$address:6443" get --raw /readyz || return 1
	done
}

# on NODE COMMAND... runs a command in the namespaces of a node.
on() {
	nsenter --target "$(cat "$STATE/$1/pid")" --mount --net --pid --uts --ipc --cgroup "${@:2}"
}

has_containerd() {
	[[ -e $STATE/$1/has-images ]]
}

# set_up NODE has kubeadm set up a node.
set_up() {
	local verb=init more=()
	wait_for has_containerd "$1"
	if [[ $1 == n1 ]]; then
		more=(--upload-certs)
	else
		verb=join
	fi
	on "$1" sed -i "s/: VERSION$/: $(kubeadm version -o short)/" /etc/kubernetes/kubeadm.yaml
	on "$1" kubeadm "$verb" --config /etc/kubernetes/kubeadm.yaml "${more[@]}"
}

nodes_ready() {
	local i
	for ((i = 1; i <= NODES; i++)); do
		kubectl wait --for condition=Ready "node/n$i" --timeout 0s || return 1
	done
}

resolves() {
	[[ -n $(getent hosts kubernetes.default.svc.cluster.local) ]]
}

# test_lives waits for a moment. It fails after the end of the test, which holds the other end of the pipe.
test_lives() {
	read -r -t 0.2 -u 3 || (($? > 128)) # the time was over
}

mount --make-rprivate / # no mount of the machine reaches the nodes later
mount_own
mount --make-rshared / # nodes, also those that run, see the volumes that tests mount here
hostname control-plane
ip link add nodes type bridge
ip addr add "$control_plane/16" dev nodes
ip link set nodes up
ip route add "$service_range" dev nodes
if [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]]; then
	echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables # frames between the nodes pass no firewall here
fi

api_servers=("$control_plane")
if [[ -z $KUBEADM ]]; then
	start etcd
	start kube-apiserver
else
	mapfile -t api_servers < <(seq -f '198.18.0.%g' 11 $((10 + NODES)))
fi
for ((i = 1; i <= NODES; i++)); do # they load their images meanwhile
	"$here/node-up.sh" "n$i"
done
if [[ -z $KUBEADM ]]; then
	wait_for api_servers_ready
	start kube-controller-manager
	start kube-scheduler
else
	for ((i = 1; i <= NODES; i++)); do
		set_up "n$i"
	done
	for user in admin proxy dns; do
		cp "$STATE/n1/disk/etc/kubernetes/admin.conf" "$access/$user.kubeconfig"
	done
	wait_for api_servers_ready
fi
touch "$STATE/api-ready"
start dns
kubectl apply -f "$here/storage.yaml"
wait_for nodes_ready
start proxy
wait_for kubectl get serviceaccount default
wait_for resolves
touch "$STATE/ready"
supervise "$STATE" test_lives
