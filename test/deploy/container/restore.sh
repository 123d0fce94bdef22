#!/usr/bin/env bash
# Restores three members, each a unit of systemd, with dr restore --into systemd, and goes back. In /run/shared are dr, etcd and etcdctl.
set -euo pipefail
. /run/shared/lib.sh

install -m 755 /run/shared/dr /run/shared/etcd /run/shared/etcdctl /usr/local/bin
cat >/run/etcd.conf <<'END'
u etcd - "etcd" /var/lib/etcd
END
systemd-sysusers /run/etcd.conf

members=
for i in 1 2 3; do
	members+=${members:+,}m$i=http://127.0.0.1:2${i}380
done
for i in 1 2 3; do
	install -d -o etcd -g etcd -m 700 "/var/lib/etcd$i"
	cat >"/etc/etcd$i.conf" <<END
# the member on host $i
ETCD_NAME=m$i
ETCD_DATA_DIR="etcd$i"
ETCD_LISTEN_CLIENT_URLS=http://0.0.0.0:2${i}379
CLUSTER=--initial-cluster $members
END
	cat >"/etc/systemd/system/etcd$i.service" <<END
[Service]
Type=notify
User=etcd
WorkingDirectory=-/var/lib
EnvironmentFile=/etc/etcd$i.conf
ExecStart=/usr/local/bin/etcd --advertise-client-urls http://127.0.0.1:2${i}379 \\
	--listen-peer-urls=http://127.0.0.1:2${i}380 --initial-advertise-peer-urls=http://127.0.0.1:2${i}380 \$CLUSTER
Restart=always
StandardError=append:/run/etcd$i.log
END
done
systemctl daemon-reload
systemctl start --no-block etcd1 etcd2 etcd3
export ETCDCTL_ENDPOINTS=http://127.0.0.1:21379,http://127.0.0.1:22379,http://127.0.0.1:23379
eventually etcdctl put before a

step "a backup, and a plan for all hosts"
export DR_REPO=file:///mnt/backups
dr backup --cluster prod --plain
etcdctl put after a
dr restore --cluster prod --plan-out /run/plan.json

step "a unit that requires a member, and that is stopped with it"
cat >/etc/systemd/system/client.service <<'END'
[Unit]
Requires=etcd1.service
[Service]
ExecStart=/bin/sleep infinity
END
systemctl daemon-reload
systemctl start client
dr restore --plan /run/plan.json --into systemd/etcd1 --dry-run | grep "systemd stops client.service together with etcd1.service"
dr restore --into systemd/etcd1 --state-dir /run/state1 --fence-only --confirm etcd1
[[ $(systemctl is-active etcd1 client | xargs) == "inactive inactive" ]]
systemctl start etcd1
[[ $(systemctl is-active etcd1) == inactive ]]
systemctl stop etcd2 etcd3
timeout 60 dr restore --into systemd/etcd1 --state-dir /run/state1 --unfence # the unit becomes active only with another member
systemctl start etcd2 etcd3
eventually systemctl is-active etcd1
pid=$(systemctl show etcd1 -P MainPID)

step "one host has lost its data, and its unit does not run"
systemctl stop etcd3
rm -r /var/lib/etcd3

step "the same command for each unit"
for i in 1 2 3; do
	dr restore --plan /run/plan.json --into "systemd/etcd$i" --confirm "etcd$i" --state-dir "/run/state$i" -o json >"/run/restored$i.log" &
done
wait
for i in 1 2 3; do
	grep -q '"state":"restored"' "/run/restored$i.log"
	systemctl is-active "etcd$i"
	[[ $(stat -c %U "/var/lib/etcd$i" "/var/lib/etcd$i/member" "/var/lib/etcd$i/member/snap/db" | sort -u) == etcd ]]
	[[ ! -e /run/systemd/system/etcd$i.service.d ]]
done
[[ $(etcdctl get --prefix --keys-only '' | xargs) == before ]]
[[ $(systemctl show etcd1 -P MainPID) != "$pid" ]]

# refused fails unless a command fails and says so: refused WORDS COMMAND...
refused() {
	if "${@:2}" >/run/last 2>&1; then
		echo "this was not refused: ${*:2}" >&2
		return 1
	fi
	grep -q "$1" /run/last
}

step "the restore of another unit"
id=$(grep -o '"id":"[0-9a-f]*"' /run/restored1.log | tail -n 1 | cut -d '"' -f 4)
refused "is of unit etcd1.service, and --into systemd/etcd2" dr restore --into systemd/etcd2 --state-dir /run/state1 --undo "$id"
systemctl is-active etcd2

step "two hosts go back"
for i in 1 2; do
	id=$(grep -o '"id":"[0-9a-f]*"' "/run/restored$i.log" | tail -n 1 | cut -d '"' -f 4)
	dr restore --into "systemd/etcd$i" --state-dir "/run/state$i" --undo "$id" >"/run/undone$i.log" 2>&1 &
done
wait
export ETCDCTL_ENDPOINTS=http://127.0.0.1:21379
eventually etcdctl get after
[[ $(etcdctl get --prefix --keys-only '' | xargs) == "after before" ]]

step "a member that the plan does not have"
sed -i s/ETCD_NAME=m3/ETCD_NAME=m9/ /etc/etcd3.conf
systemctl stop etcd3
refused "unit etcd3.service runs the member m9, and the plan has m1=" \
	dr restore --plan /run/plan.json --into systemd/etcd3.service --confirm etcd3 --state-dir /run/other
refused "systemd has no unit none.service" dr restore --plan /run/plan.json --into systemd/none --state-dir /run/other

step "a unit that runs a script"
sed -i 's#^ExecStart=#ExecStart=/bin/sh #' /etc/systemd/system/etcd3.service
systemctl daemon-reload
refused "unit etcd3.service does not run etcd itself" dr restore --plan /run/plan.json --into systemd/etcd3 --state-dir /run/other
mkdir -p /var/lib/rancher/k3s/server/db/etcd
for into in systemd/etcd3 kubeadm; do
	refused "this host runs k3s, which manages etcd itself" dr restore --plan /run/plan.json --into $into --state-dir /run/other
done
echo "all of it was seen"
