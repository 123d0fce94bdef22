#!/usr/bin/env bash
# Process 1 of a node.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
node=$1 number=${1#n} folder=$STATE/$1 access=$STATE/access
logs=$folder/log address=198.18.0.$((10 + number))

run_containerd() {
	exec containerd --config /run/containerd.toml
}

run_kubelet() {
	if [[ -n $KUBEADM ]]; then
		run_kubelet_of_kubeadm
	fi
	exec kubelet --config /run/kubelet.yaml --kubeconfig "$access/$node.kubeconfig" --hostname-override "$node" --node-ip "$address" \
		--root-dir /var/lib/kubelet --v 1
}

# run_kubelet_of_kubeadm runs the kubelet as the package of Kubernetes does.
run_kubelet_of_kubeadm() {
	. /var/lib/kubelet/kubeadm-flags.env
	# shellcheck disable=SC2086 # several flags
	exec kubelet --config /var/lib/kubelet/config.yaml --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf \
		--kubeconfig /etc/kubernetes/kubelet.conf --node-ip "$address" $KUBELET_KUBEADM_ARGS --v 1
}

containers() {
	ctr --address /run/containerd/containerd.sock --namespace k8s.io "$@"
}

# The machine's own folders are hidden, and a layer takes the changes of its /etc: nothing is left there.
mount -t overlay -o "lowerdir=/etc,upperdir=$folder/etc,workdir=$folder/work" overlay /etc
mkdir -p /etc/kubernetes
mount_own
for dir in /etc/kubernetes /var/lib /var/log; do
	mount --bind "$folder/disk$dir" "$dir"
done
# The kubelet would set these for the whole machine. It sees the values that it wants, and the machine keeps its own.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	file=/run/sysctl/${setting%=*}
	mkdir -p "$(dirname "$file")"
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "/proc/sys/${setting%=*}"
done
mount --make-rshared /
hostname "$node"
until [[ -e $folder/linked ]]; do
	sleep 0.02
done
ip link add cni0 type bridge
ip link set uplink master cni0 up
ip addr add "$address/16" dev cni0
ip link set cni0 up
ip route add "$service_range" dev cni0
ip route add default via "$control_plane" # which leads nowhere, and shows kubeadm the address of the node
echo 1 >/proc/sys/net/ipv4/ip_forward
if [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]]; then
	echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
fi

# Root here may lack CAP_SYS_RESOURCE: restrict_oom_score_adj keeps containerd from asking for a lower score.
cat >/run/containerd.toml <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/opt-containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "etcd-dr.test/pause:1"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$folder/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
END
# All pods of all nodes are in one network of layer 2.
cat >"$folder/cni/pods.conflist" <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "hairpinMode": true, "ipam": {
    "type": "host-local", "dataDir": "/run/cni", "routes": [{"dst": "0.0.0.0/0"}],
    "ranges": [[{"subnet": "198.18.0.0/16", "rangeStart": "198.18.$number.1", "rangeEnd": "198.18.$number.254", "gateway": "$address"}]]}}]}
END
cat >/run/kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failSwapOn: false
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $access/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $access/server.crt
tlsPrivateKeyFile: $access/server.key
clusterDomain: cluster.local
clusterDNS: [$control_plane]
resolvConf: /etc/resolv.conf
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
volumePluginDir: /run/kubelet-plugins
staticPodPath: /etc/kubernetes/manifests
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: 8
END

start containerd
wait_for containers version
if [[ ! -e $folder/has-images ]]; then
	for image in "$TOOLS"/images/*.tar; do
		containers images import "$image" >>"$logs/images.log" 2>&1
	done
	if [[ -n $KUBEADM ]]; then # the pods mount their programs
		for program in kube-apiserver kube-controller-manager kube-scheduler; do
			containers images tag etcd-dr.test/pause:1 "etcd-dr.test/$program:$(kubeadm version -o short)"
		done
	fi
	touch "$folder/has-images"
fi
begin=$STATE/api-ready
if [[ -n $KUBEADM ]]; then # it has to start the API server
	begin=/var/lib/kubelet/kubeadm-flags.env
fi
until [[ -e $begin ]]; do
	sleep 0.1
done
start kubelet
until [[ -e $STATE/api-ready ]]; do
	sleep 0.1
done
start proxy
# A pipe into which no process writes. Reading it needs no process, as sleep would five times a second.
exec {silence}<> <(:)
round() { read -rt 0.2 -u "$silence" || true; }
supervise "$folder" round
