#!/usr/bin/env bash
# Installs the units as docs/serve.md and their own comments describe it, and runs them under systemd beside a member of etcd.
# In /run/shared are dr, etcd, etcdctl, and the project's directories deploy and docs.
set -euo pipefail
. /run/shared/lib.sh

# is fails unless a unit's properties have these values: is UNIT NAME=VALUE...
is() {
	local want
	for want in "${@:2}"; do
		if ! systemctl show "$1" -p "${want%%=*}" | tee /run/last | grep -qxF "$want"; then
			echo "$1: $(cat /run/last), want $want" >&2
			return 1
		fi
	done
}

install -m 755 /run/shared/dr /usr/local/bin/dr
install -d /etc/etcd-dr
cd /run/shared

# What a host with etcd has.
cat >/run/etcd.conf <<'END'
u etcd - "etcd" /var/lib/etcd
END
systemd-sysusers /run/etcd.conf
install -d -o etcd -g etcd -m 700 /var/lib/etcd
systemd-run --quiet --unit=etcd -p User=etcd -p StandardError=file:/run/etcd.log \
	/run/shared/etcd --name m1 --data-dir /var/lib/etcd --listen-client-urls http://127.0.0.1:2379 \
	--advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
	--initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster m1=http://127.0.0.1:2380
eventually ./etcdctl put before a

step "installed as the units and docs/serve.md describe it"
install -d /mnt/backups /var/backups
sed -n 's/^    \(install .*deploy\/systemd.*\)/\1/p' docs/serve.md >/run/install.sh
cat /run/install.sh
bash -euo pipefail /run/install.sh
install -d -o etcd-dr -g etcd-dr -m 2770 /mnt/backups/etcd /var/backups/etcd
mount --bind /mnt/backups/etcd /var/backups/etcd
usermod -aG etcd-dr etcd
dr keygen --to /etc/etcd-dr/key.txt >/etc/etcd-dr/recipients.txt
chown etcd-dr /etc/etcd-dr/key.txt
cat >/etc/etcd-dr/dr.yaml <<'END'
repositories:
  main: {url: file:///var/backups/etcd}
clusters:
  prod:
    etcd: {endpoints: [http://127.0.0.1:2379]}
    repositories: [main]
    recipientsFile: /etc/etcd-dr/recipients.txt
    schedule: {cron: "@every 2s"}
    drill: {schedule: {cron: "@every 2s"}, identityFiles: [/etc/etcd-dr/key.txt]}
END
cat >/etc/etcd-dr/archive.env <<'END'
DR_REPO=file:///mnt/backups/etcd
DR_CLUSTER=prod
ETCDCTL_ENDPOINTS=http://127.0.0.1:2379
END
for unit in serve archive; do
	mkdir "/etc/systemd/system/etcd-dr-$unit.service.d"
	printf '[Service]\nStandardError=append:/run/%s.log\n' "$unit" >"/etc/systemd/system/etcd-dr-$unit.service.d/log.conf"
done
systemctl daemon-reload
systemctl enable --now etcd-dr-serve etcd-dr-archive

step "both work in one repository, as two users: backups, a drill that passes, any revision"
export DR_REPO=file:///mnt/backups/etcd DR_CLUSTER=prod DR_IDENTITY=/etc/etcd-dr/key.txt
proven() { dr list -o json | grep '"drill"' >/dev/null; }
restored() { dr restore --old-is-dead --output-dir /run/restored --to-revision 3; }
eventually proven
./etcdctl put after b
eventually restored
dr list | tail -n 2

step "a killed process is started again"
systemctl kill --signal=KILL --kill-whom=main etcd-dr-serve etcd-dr-archive
eventually is etcd-dr-serve NRestarts=1 ActiveState=active
eventually is etcd-dr-archive NRestarts=1 ActiveState=active
eventually curl --fail --silent http://127.0.0.1:2391/readyz

step "a reload takes up the configuration, a stop ends in good order"
sed -i 's/cron: "@every 2s"/cron: "@every 3s"/' /etc/etcd-dr/dr.yaml
systemctl reload etcd-dr-serve
is etcd-dr-serve NRestarts=1 ActiveState=active
systemctl stop etcd-dr-serve etcd-dr-archive
is etcd-dr-serve Result=success ActiveState=inactive
is etcd-dr-archive Result=success ActiveState=inactive

step "a configuration that cannot be used is not tried again and again"
echo "nonsense: true" >>/etc/etcd-dr/dr.yaml
systemctl start etcd-dr-serve || true
eventually is etcd-dr-serve ActiveState=failed ExecMainStatus=2
step "all of it was seen"
