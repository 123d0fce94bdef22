# Sourced by the scripts of this folder, which run with these variables:
#
#   STATE   the folder with everything that the cluster stores; down.sh removes it
#   TOOLS   what test/tools/build.sh has built
#   NODES   how many nodes there are
#   KUBEADM not empty if kubeadm sets up the nodes, whose disks have its configuration

# Addresses for benchmarks (RFC 2544). They exist in the cluster's own network namespaces alone, which have no link to the host.
# Node i is 198.18.0.(10+i), and its pods are in 198.18.i.0/24.
control_plane=198.18.0.1
service_range=198.19.0.0/16

PATH=$TOOLS/kubernetes:$TOOLS/etcd-3.6:$PATH
unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy

# make_cgroups NAME makes a cgroup in each hierarchy (v1), below that of the caller, and prints them.
make_cgroups() {
	local controllers path folder
	while IFS=: read -r _ controllers path; do
		folder=/sys/fs/cgroup/${controllers#name=}${path%/}
		if [[ -z $controllers || ! -d $folder ]]; then
			continue
		fi
		mkdir -p "$folder/$1"
		if [[ -f $folder/$1/cpuset.cpus ]]; then # new ones are empty, and accept no process
			cat "$folder/cpuset.cpus" >"$folder/$1/cpuset.cpus"
			cat "$folder/cpuset.mems" >"$folder/$1/cpuset.mems"
		fi
		printf '%s\n' "$folder/$1"
	done </proc/self/cgroup
}

# remove_cgroups removes the cgroups that the file lists. The kernel frees them late.
remove_cgroups() {
	local folder
	while read -r folder; do
		for _ in {1..50}; do
			if [[ -d $folder ]]; then
				find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
			fi
		done
	done <"$1"
}

# spawn CGROUPS LOG COMMAND... runs a command as process 1 of new namespaces, in the cgroups that a file lists, and prints its pid as
# the caller sees it. All that the command starts ends with it. It sees what the caller mounts later.
spawn() {
	local cgroups=$1 log=$2 launcher first=
	(
		while read -r folder; do
			echo "$BASHPID" >"$folder/cgroup.procs"
		done <"$cgroups"
		exec setsid unshare --net --mount --propagation slave --pid --uts --ipc --cgroup --fork --kill-child --mount-proc "${@:3}" >"$log" 2>&1 </dev/null
	) &
	launcher=$!
	for _ in {1..500}; do
		first=$(awk '{print $1}' "/proc/$launcher/task/$launcher/children" 2>/dev/null) || true
		if [[ -n $first ]]; then
			break
		fi
		sleep 0.02
	done
	printf '%s\n' "$first"
}

# mount_own gives process 1 its own /sys, cgroups, /run and resolver.
mount_own() {
	local controllers
	mount -t sysfs sysfs /sys
	mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
	while IFS=: read -r _ controllers _; do
		if [[ -z $controllers ]]; then
			continue
		fi
		mkdir "/sys/fs/cgroup/${controllers#name=}"
		if [[ $controllers == name=* ]]; then # the kubelet wants the hierarchy of systemd too
			mount -t cgroup -o "none,$controllers" cgroup "/sys/fs/cgroup/${controllers#name=}"
		else
			mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers"
		fi
	done </proc/self/cgroup
	mount -t tmpfs -o mode=755 tmpfs /run
	printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' "$control_plane" >/run/resolv.conf
	mount --bind /run/resolv.conf /etc/resolv.conf
	# kube-controller-manager provisions volumes below this fixed path. It is the same storage on every node. The machine's own folder is a
	# mount point alone, for all clusters: it stays.
	mkdir -p /tmp/hostpath_pv
	mount --bind "$STATE/volumes" /tmp/hostpath_pv
	ip link set lo up
}

declare -A components

# start NAME runs the function run_NAME in the background, and appends its output to a log in $logs. Each component gets one
# processor, for the reason in test/servers/process.go, and collects its garbage rarely. All pods and commands wait for Kubernetes, so it
# comes first when processors are scarce. Only containerd does not: its containers would inherit that.
start() {
	{
		if [[ $1 != containerd ]]; then
			renice -n -10 -p "$BASHPID" >/dev/null 2>&1 || true # only root may
		fi
		GOMAXPROCS=1 GOGC=400 "run_$1"
	} >>"$logs/$1.log" 2>&1 &
	components[$1]=$!
}

# wait_for repeats a command until it succeeds. It ends everything if a component ends.
wait_for() {
	local name
	until "$@" >/dev/null 2>&1; do
		for name in "${!components[@]}"; do
			if ! kill -0 "${components[$name]}" 2>/dev/null; then
				printf '%s ended:\n' "$name"
				tail -n 20 "$logs/$name.log"
				exit 1
			fi
		done
		sleep 0.1
	done
}

# supervise FOLDER COMMAND... starts each component that ends again. While FOLDER/off/NAME exists it is stopped instead, and then
# FOLDER/stopped/NAME exists too. The command waits between two rounds, and ends everything if it fails.
supervise() {
	local name pid
	mkdir -p "$1"/{off,stopped}
	while "${@:2}"; do
		for name in "${!components[@]}"; do
			pid=${components[$name]}
			if [[ -e $1/off/$name ]]; then
				kill -KILL "$pid" 2>/dev/null || touch "$1/stopped/$name"
			elif ! kill -0 "$pid" 2>/dev/null; then
				rm -f "$1/stopped/$name"
				start "$name"
			fi
		done
	done
}

# run_proxy lets the processes of a node, or of the control plane, use the addresses of Services.
run_proxy() {
	cat >/run/proxy.yaml <<-END
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		mode: nftables
		hostnameOverride: $node
		clusterCIDR: 198.18.0.0/16
		clientConnection: {kubeconfig: $STATE/access/proxy.kubeconfig}
		conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
		nftables: {minSyncPeriod: 100ms, syncPeriod: 30s}
	END
	exec kube-proxy --config /run/proxy.yaml
}
