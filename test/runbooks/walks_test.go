package runbooks

import (
	"slices"
	"time"
)

const day = 24 * time.Hour

// Shorter names of steps.
func by(hand string) step              { return step{hand: hand} }
func wait(until string) step           { return step{until: until} }
func page(command string) step         { return step{page: command} }
func fails(c string, code int) step    { return step{page: c, code: code} }
func filled(c, what, with string) step { return step{page: c, fill: map[string]string{what: with}} }

const takeBackup = "dr backup --recipients-file"

// aBackup takes a backup before the situation.
var aBackup = by("backup")

// walks returns those of each of the machines, in order.
func walks() [][]walk {
	return [][]walk{
		slices.Concat(backupWalks(), proofWalks(), policyWalks(), serviceWalks()),
		slices.Concat(clusterWalks(), logWalks()),
	}
}

func backupWalks() []walk {
	return []walk{{
		pages:  []string{"NoBackup"},
		shows:  []string{"NoBackup", "there is no backup"},
		cures:  []step{page(takeBackup), page("dr verify latest --level stored"), page("dr verify --all --level hashed")},
		left:   map[string]string{"dr list --as-of": "a directory keeps no versions"},
		breaks: nil,
	}, {
		pages:   []string{"BackupLate"},
		cluster: map[string]string{"schedule": `{cron: "@daily"}`},
		breaks:  []step{aBackup, dated(-50 * time.Hour)},
		shows:   []string{"BackupLate", "the next was due"},
		cures:   []step{page(takeBackup)},
	}, {
		pages:   []string{"RPOHigh"},
		cluster: map[string]string{"suspend": "true"},
		breaks:  []step{aBackup, dated(-27 * time.Hour)},
		begun:   "dr list -o json | jq -e '.backups[0].started | sub(\"\\\\.[0-9]+\"; \"\") | now - fromdate > 26 * 3600'",
		shows:   []string{"1 day|27h"},
		cures:   []step{page(takeBackup)},
		over:    "dr list -o json | jq -e '.backups[0].started | sub(\"\\\\.[0-9]+\"; \"\") | now - fromdate < 3600'",
	}, {
		pages:  []string{"BackupDamaged"},
		breaks: []step{aBackup, by("rm /var/backups/etcd/prod/backups/*/snapshot*"), by("put /registry/runbook/second; backup")},
		shows:  []string{"damaged"},
		cures:  []step{by("cd /var/backups/etcd/prod/backups && rm -r $(ls | head -n 1); cd -")},
		left:   map[string]string{"dr copy --from": "there is no second repository"},
	}, {
		pages: []string{"BackupShrunk"},
		breaks: []step{
			by("for i in {1..8}; do head -c 600000 /dev/zero | tr '\\0' $i | patient put /registry/runbook/large-$i; done"),
			aBackup, by("put /registry/runbook/second; backup"), by("put /registry/runbook/third; backup"), by("put /registry/runbook/fourth; backup"),
			by("patient del --prefix /registry/runbook/large"),
			by("patient compaction --physical $(etcdctl get x -w json | jq .header.revision) && patient defrag"),
			aBackup,
		},
		shows: []string{"large-1"},
		cures: []step{
			filled("dr diff ID latest", "ID", "$(ids | sed -n 2p)"), page("dr verify latest --level opened"),
			filled("dr pin ID", "ID", "$(ids | sed -n 2p)"), by("backup && backup && standing BackupShrunk && backup"),
		},
	}, {
		pages:  []string{"ClocksApart"},
		breaks: []step{aBackup, dated(time.Hour), by("put /registry/runbook/second")},
		shows:  []string{"clock"},
		cures:  []step{page(takeBackup), by("cd /var/backups/etcd/prod/backups && rm -r $(ls | tail -n 1); cd -")},
	}, {
		pages: []string{"ClusterChanged"},
		breaks: []step{
			aBackup,
			by("etcd --name other --data-dir /srv/other --listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 " +
				"--listen-peer-urls http://127.0.0.1:12380 >/srv/other.log 2>&1 & echo $! >/srv/other.pid"),
			wait("ETCDCTL_ENDPOINTS=http://127.0.0.1:12379 etcdctl put a b"),
			by("ETCDCTL_ENDPOINTS=http://127.0.0.1:12379 backup"),
		},
		shows: []string{"ClusterChanged"},
		cures: []step{
			aBackup, wait("over ClusterChanged"),
			by("ETCDCTL_ENDPOINTS=http://127.0.0.1:12379 backup"), wait("standing ClusterChanged"),
			page("dr pin latest --confirm"), by("kill $(</srv/other.pid)"),
		},
		left: map[string]string{"dr restore": "docs/restore.md has it"},
	}, {
		pages:  []string{"RepositoryAway"},
		breaks: []step{aBackup, by("mv /var/backups/etcd /var/backups/away")},
		shows:  []string{"there is no directory"},
		cures:  []step{by("mv /var/backups/away /var/backups/etcd"), page(`dr check --repo "$DR_REPO"`)},
	}}
}

func proofWalks() []walk {
	return []walk{{
		pages:   []string{"NeverProven"},
		cluster: map[string]string{"conditions": "{proven: 7d}"},
		breaks:  []step{aBackup, dated(-8 * day)},
		shows:   []string{"stored"},
		cures:   []step{page("dr verify latest --level hashed"), page("dr verify latest --level booted")},
	}, {
		pages:   []string{"NeverDecrypted"},
		cluster: map[string]string{"conditions": "{proven: 7d}"},
		breaks:  []step{aBackup, dated(-8 * day), by("dr verify latest --level hashed")},
		shows:   []string{"never decrypted"},
		cures:   []step{page("dr verify latest --level opened"), by("! dr list | grep 'never decrypted'")},
		left:    map[string]string{"dr keygen": "the key is there"},
	}, {
		pages:  []string{"DrillFailed"},
		breaks: []step{aBackup, by("dr drill --identity key.txt --assert key=/registry/runbook/absent; [[ $? == 3 ]]")},
		shows:  []string{"/registry/runbook/absent"},
		cures: []step{
			by("dr drill --identity key.txt && standing DrillFailed"), // it tries another value
			by("put /registry/runbook/absent; backup"),
			filled("dr drill --identity key.txt --assert", "KEY", "/registry/runbook/absent"),
		},
	}, {
		pages:  []string{"DrillNotRun"},
		breaks: []step{aBackup, by("dr drill; [[ $? == 1 ]]")},
		shows:  []string{"not run"},
		cures:  []step{page("dr drill --identity key.txt")},
	}}
}

func policyWalks() []walk {
	return []walk{{
		pages:   []string{"NotEncrypted"},
		cluster: map[string]string{"recipientsFile": "", "backup": "{plain: true}"},
		breaks:  []step{by("dr backup --plain"), by("rm key.txt")},
		shows:   []string{"NotEncrypted"},
		cures: []step{
			page("dr keygen --to key.txt"), by("dr keygen --to other.txt >/etc/etcd-dr/recipients.txt"),
			by("sed -i 's,backup: .*,recipientsFile: /etc/etcd-dr/recipients.txt,' /etc/etcd-dr/dr.yaml"),
			page("dr config check"), aBackup, by("dr show latest | grep age1"),
		},
	}, {
		pages:      []string{"NotSigned"},
		cluster:    map[string]string{"repositories": "[main, offsite]"},
		repository: "  offsite:\n    url: file:///srv/offsite\n    signKeyFile: /etc/etcd-dr/offsite.key\n",
		breaks:     []step{aBackup, by("mkdir -p /srv/offsite; dr keygen --signing --to /etc/etcd-dr/offsite.key")},
		shows:      []string{"NotSigned"},
		cures: []step{
			page("dr keygen --signing --to sign.key"),
			by("export DR_TRUST=$(dr keygen --signing --to /etc/etcd-dr/sign.key) DR_SIGN_KEY=/etc/etcd-dr/sign.key"),
			by("sed -i \"s,url: .*/etcd$,&\\n    signKeyFile: $DR_SIGN_KEY\\n    trust: [$DR_TRUST]\\n,\" /etc/etcd-dr/dr.yaml"),
			aBackup, {page: "dr list --trust", fill: map[string]string{"PUBLIC_KEY": "$DR_TRUST"}, code: 3},
		},
	}, {
		pages:      []string{"NotLocked"},
		cluster:    map[string]string{"repositories": "[bucket]"},
		repository: "  bucket:\n    url: s3://backups?endpoint=http://127.0.0.1:9000&region=us-east-1\n",
		breaks: []step{
			by("mkdir -p /srv/minio/backups; export AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin; " +
				"$MINIO server --address 127.0.0.1:9000 /srv/minio >/srv/minio.log 2>&1 & echo $! >/srv/minio.pid"),
			by("export AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin"),
			wait("curl -sf http://127.0.0.1:9000/minio/health/live"),
			by("backup --repo 's3://backups?endpoint=http://127.0.0.1:9000&region=us-east-1'"), aBackup,
		},
		shows: []string{"NotLocked"},
		cures: []step{
			by("sed -i 's,url: s3.*,&\\n    lock: {for: 30d\\, mode: governance},' /etc/etcd-dr/dr.yaml"), {page: "dr check --lock 1m", code: 3},
		},
		left: map[string]string{"dr copy --from": "there is no second repository"},
	}}
}

func clusterWalks() []walk {
	back := wait("healthy")
	return []walk{{
		pages:  []string{"MembersAway"},
		breaks: []step{aBackup, by("stop_member 3")},
		shows:  []string{"10.0.0.3.*(unhealthy|failed)|unhealthy"},
		cures:  []step{by("start_member 3"), back, page("etcdctl endpoint health --cluster")},
	}, {
		pages:  []string{"NoQuorum"},
		breaks: []step{aBackup, by("stop_member 2 3")},
		shows:  []string{"unhealthy"},
		cures: []step{
			filled("dr salvage --from-data-dir DIR", "DIR", "/var/lib/etcd/infra3"),
			page("dr backup --from any"), page("dr restore --output-dir"), by("start_member 2; start_member 3"), back,
			page("etcdctl endpoint health --cluster"),
		},
	}, {
		pages:  []string{"CertificateExpires"},
		breaks: []step{aBackup, clientCertificate("short", 5*day)},
		shows:  []string{"notAfter=", "renew"},
		cures:  []step{clientCertificate("renewed", certificatesLast), page("dr check")},
	}, {
		pages: []string{"AlarmRaised"},
		breaks: []step{
			aBackup,
			wait("head -c 1000000 /dev/zero | tr '\\0' x | etcdctl put /registry/runbook/large-$RANDOM >/dev/null 2>&1; etcdctl alarm list | grep NOSPACE"),
		},
		shows: []string{"NOSPACE"},
		cures: []step{
			page(takeBackup), by("patient del --prefix /registry/runbook/large"),
			filled("etcdctl compaction", "REVISION", "--command-timeout 2m --physical $(etcdctl endpoint status -w json | jq '.[0].Status.header.revision')"),
			{page: "etcdctl defrag", again: true}, {page: "etcdctl alarm disarm", again: true}, wait(`[[ -z $(etcdctl alarm list) ]]`),
			filled("dr find --prefix", "/registry/", "/registry/runbook/ --identity key.txt"),
		},
	}, {
		pages: []string{"MembersDiverged"},
		breaks: []step{
			aBackup, by("put /registry/runbook/second; stop_member 3"), diverged("infra3"), by("start_member 3"), back,
			by("backup --compare-members; [[ $? != 0 ]]"),
		},
		shows: []string{"diverged"},
		cures: []step{
			filled("dr pin ID", "ID", "$(ids | tail -n 1)"),
			// The others accept the removal only after they have seen the member for a while. An attempt that runs into
			// its timeout may be carried out later, and the next one then finds no such member.
			{
				page:  "etcdctl member remove",
				fill:  map[string]string{"ID": "$(etcdctl member list | sed -n 's/, .*infra3.*//p') || gone infra3"},
				again: true,
			},
			by("stop_member 3 || true; mv /var/lib/etcd/infra3 /var/lib/etcd/wrong"),
			{
				page:  "etcdctl member add",
				fill:  map[string]string{"NAME": "infra3", "HOST:2380": "10.0.0.3:2380 || etcdctl member list | grep 10.0.0.3:2380"},
				again: true,
			},
			by("start_member 3 --initial-cluster-state existing"), back, page("etcdctl alarm disarm"),
			page("dr backup --compare-members"),
		},
	}}
}
