#!/usr/bin/env bash
# The machine that the README and docs speak of: three etcd members on addresses of their own, certificates and directories
# where the pages have them, all in namespaces that vanish with this script. Runs the commands that come on stdin.
#
#   machine.sh CERTIFICATES PROGRAMS WORK
set -euo pipefail

certificates=$1 programs=$2 work=$3

if [[ -z ${INSIDE:-} ]]; then
	INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi

# A layer over each directory takes what is written there.
layers=$work/layers
mkdir -p "$layers"
mount -t tmpfs layers "$layers"
for dir in /etc /var /srv; do
	mkdir -p "$layers$dir/upper" "$layers$dir/work"
	mount -t overlay overlay -o "lowerdir=$dir,upperdir=$layers$dir/upper,workdir=$layers$dir/work" "$dir"
done
mkdir -p /etc/etcd /var/backups /var/lib/etcd
cp "$certificates/ca.pem" /etc/etcd/ca.crt
cp "$certificates/root.pem" /etc/etcd/client.crt
cp "$certificates/root-key.pem" /etc/etcd/client.key
cp "$certificates/server.pem" /etc/etcd/server.crt
cp "$certificates/server-key.pem" /etc/etcd/server.key

ip link set lo up
for i in 1 2 3; do
	ip address add "10.0.0.$i/32" dev lo
done

export PATH=$programs:$PATH HISTFILE= WORK=$work
export CLUSTER=infra1=https://10.0.0.1:2380,infra2=https://10.0.0.2:2380,infra3=https://10.0.0.3:2380

# start_member starts a member by its number, with further flags.
start_member() {
	local i=$1
	etcd --name "infra$i" --data-dir "/var/lib/etcd/infra$i" \
		--listen-client-urls "https://10.0.0.$i:2379" --advertise-client-urls "https://10.0.0.$i:2379" \
		--listen-peer-urls "https://10.0.0.$i:2380" --initial-advertise-peer-urls "https://10.0.0.$i:2380" \
		--initial-cluster "$CLUSTER" --client-cert-auth --trusted-ca-file /etc/etcd/ca.crt \
		--cert-file /etc/etcd/server.crt --key-file /etc/etcd/server.key \
		--peer-client-cert-auth --peer-trusted-ca-file /etc/etcd/ca.crt \
		--peer-cert-file /etc/etcd/server.crt --peer-key-file /etc/etcd/server.key "${@:2}" \
		>>"$WORK/infra$i.log" 2>&1 &
	echo $! >"$WORK/infra$i.pid"
}

# stop_member kills members by their numbers, and waits until they have ended.
stop_member() {
	local i pid
	for i in "$@"; do
		pid=$(<"$WORK/infra$i.pid")
		kill -KILL "$pid"
		tail --pid="$pid" -f /dev/null
	done
}
export -f start_member stop_member

for i in 1 2 3; do
	start_member "$i" ${ETCD_FLAGS:-}
done

etcdctl() { # for a machine whose members elect a leader again
	command etcdctl --dial-timeout 2m --command-timeout 2m --endpoints https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379 \
		--cacert /etc/etcd/ca.crt --cert /etc/etcd/client.crt --key /etc/etcd/client.key "$@"
}
for _ in {1..1000}; do
	etcdctl endpoint health >"$work/health" 2>&1 && break
	sleep 0.2
done
for i in {1..300}; do
	printf 'put /registry/configmaps/default/object-%s "value %s"\n' "$i" "$i"
done >"$work/puts"
for start in 1 101 201; do # a hundred a transaction: a process for each would take a minute
	{ echo; sed -n "$start,$((start + 99))p" "$work/puts"; echo; echo; } | etcdctl txn >"$work/txn" 2>&1
done
unset -f etcdctl

cd "$work/tree"
exec bash --norc --noprofile
