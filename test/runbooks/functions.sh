# What the tests of the runbooks use on the machine, besides the commands of the pages.
tree=$PWD
PATH=$tree/test/runbooks/programs:$PATH
mkdir -p /etc/units /etc/etcd-dr /srv/host
chmod 700 /etc/etcd-dr
cd /srv/host || exit

# unit makes a unit of a file in deploy/systemd.
unit() {
	{
		echo '#!/usr/bin/env bash'
		echo 'exec' "$(sed -n 's,^ExecStart=/usr/local/bin/,,p' "$tree/deploy/systemd/$1.service" | sed "$2")"
	} >"/etc/units/$1"
	chmod +x "/etc/units/$1"
}
# fresh ends the services and removes all that a page before has left.
fresh() {
	systemctl stop etcd-dr-serve etcd-dr-archive
	[[ ! -e /srv/minio.pid ]] || kill "$(</srv/minio.pid)" && rm -f /srv/minio.pid
	unit etcd-dr-serve ''
	unit etcd-dr-archive 's,/var/lib/etcd,/var/lib/etcd/infra1 --flush 200ms --lease 5s,'
	rm -rf /var/backups/etcd /var/backups/away /var/lib/etcd-dr /etc/units/*.log /etc/etcd-dr/* ./*
	mkdir -p /var/backups/etcd /var/lib/etcd-dr
	dr keygen --to key.txt >/etc/etcd-dr/recipients.txt
	patient del --prefix /registry/runbook
	put /registry/runbook/first
	unset DR_TRUST DR_SIGN_KEY
}

put() { patient put "$1" "value of $1"; }

# patient writes with etcdctl, and waits longer than its own five seconds for a member that a slow machine has just started.
patient() { etcdctl --dial-timeout 2m --command-timeout 2m "$@" >/dev/null; }

backup() { dr backup --dial-timeout 20s --recipients-file /etc/etcd-dr/recipients.txt "$@"; }

# ids are the backups, the newest first.
ids() { dr list -o json | jq -r '.backups[].id'; }

# standing reports whether dr status has a condition.
standing() { stands '.clusters[].conditions | any(.name == $name)' "$1"; }

# over reports whether dr status has it no more.
over() { stands '.clusters | length > 0 and all(.conditions | all(.name != $name))' "$1"; }

stands() { dr status --config /etc/etcd-dr/dr.yaml --check -o json | jq -es --arg name "$2" ".[0] | $1" >/dev/null; }

served() { serves '.clusters[].conditions | any(.name == $name)' "$1"; }

unserved() { serves '.clusters | length > 0 and all(.standings != [] and (.conditions | all(.name != $name)))' "$1"; }

serves() { curl -sS http://127.0.0.1:2391/status | jq -e --arg name "$2" "$1" >/dev/null; }

# conditions prints the conditions of a status on stdin as dr status does, each on one line.
conditions() {
	jq -r '.clusters[].conditions[] | "\(.severity) \(.name)\(if .repository then " in \(.repository)" else "" end): \(.message)"'
}

# metric reports whether an awk condition holds of the value of a metric, at the port of the service or of the agent.
metric() {
	curl -sS "http://127.0.0.1:$1/metrics" |
		awk -v name="$2" "index(\$1, name) == 1 { found = 1; value = \$2 } END { exit !(found && ($3)) }"
}

# gone reports whether the cluster answers, and has no member of that name.
gone() {
	local members
	members=$(etcdctl member list) && ! grep -q ", $1, " <<<"$members"
}

healthy() { etcdctl endpoint health >/dev/null 2>&1; }
