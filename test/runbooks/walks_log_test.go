package runbooks

import (
	"slices"
	"time"
)

const agentWorks = "curl -sS http://127.0.0.1:2390/status | jq -e '.state == \"working\"'"

// agentRuns starts dr archive, waits until it works and the log has its backup, and executes more steps.
func agentRuns(then ...step) []step {
	return append([]step{by("systemctl start etcd-dr-archive"), wait(agentWorks), wait(isBackup)}, then...)
}

const isWindow = "dr list -o json | jq -e '.windows | length > 0'"

const isBackup = "dr list -o json | jq -e '.backups | length > 0'"

// storeAway is a service that archives the log, and whose store becomes unreachable once the service knows a moment up to which
// everything is stored. Before, LogLagging has another message.
var storeAway = []step{
	by("systemctl start etcd-dr-serve"), wait(serviceArchives), by("put /registry/runbook/second"), wait(isWindow),
	wait("serves '.clusters[].archive.confirmedAt > \"1970\"'"),
	by("mv /var/backups/etcd /var/backups/away; head -c 1000000 /dev/urandom | base64 | patient put /registry/runbook/large"),
}

const serviceArchives = `serves '.clusters[].archive.state == "working"' && dr list -o json | jq -e '.backups | length > 0'`

func logWalks() []walk {
	return []walk{{
		pages: []string{"LogStopped"},
		breaks: agentRuns(by("put /registry/runbook/zeroth"), wait(isWindow), by("systemctl stop etcd-dr-archive"),
			// The host that takes the backup is ten minutes ahead, slightly less than a backup from the future.
			wait(`(( $(date +%s) - $(dr list -o json | jq -r '.windows[-1].to.time' | date -f - +%s) > 5 ))`),
			by("put /registry/runbook/second; backup"), dated(9*time.Minute+57*time.Second)),
		shows: []string{"inactive"},
		cures: []step{by("systemctl start etcd-dr-archive"), wait(agentWorks), by("put /registry/runbook/third")},
	}, {
		pages: []string{"LogGap"},
		breaks: slices.Concat(
			[]step{by("sed -i 's,--data-dir [^ ]*,--source watch,' /etc/units/etcd-dr-archive")},
			agentRuns(by("put /registry/runbook/second"), wait(isWindow), by("systemctl stop etcd-dr-archive; put /registry/runbook/third; put /registry/runbook/fourth"),
				by("patient compaction --physical $(etcdctl get x -w json | jq .header.revision)")),
			agentRuns(wait("put /registry/runbook/fifth; dr list -o json | jq -e '.gaps | length > 0' && [[ $(ids | wc -l) -gt 1 ]]"),
				by("systemctl stop etcd-dr-archive; rm -r /var/backups/etcd/prod/backups/$(ids | head -n 1)")), // the backup after the gap is lost too
		),
		cures: []step{page(takeBackup), filled("dr pin ID", "ID", "$(ids | tail -n 1)"), fails("dr archive verify --since", 3)},
	}, {
		pages:   []string{"WindowShort"},
		breaks:  agentRuns(by("put /registry/runbook/second")),
		begun:   isWindow,
		cures:   []step{filled("dr pin ID", "ID", "latest")},
		endless: "the window is as long as was agreed when so much time has passed",
	}, {
		pages: []string{"PurgeHeadroomShort"},
		breaks: slices.Concat([]step{by("sed -i '/dr archive/s/$/ --max-wals 1/' /etc/units/etcd-dr-archive")}, agentRuns(
			by("mv /var/backups/etcd /var/backups/away"),
			by("head -c 600000 /dev/urandom | base64 | patient put /registry/runbook/large"))),
		begun: "metric 2390 etcd_dr_archive_purge_headroom_seconds 1",
		shows: []string{"headroom"},
		cures: []step{by("mv /var/backups/away /var/backups/etcd")},
		over:  agentWorks,
	}, {
		pages:   []string{"LogLagging", "SpoolFilling"},
		service: true,
		cluster: map[string]string{
			"archive":    "{flush: 200ms, spool: /var/lib/etcd-dr/spool, spoolMax: 64MiB}",
			"conditions": "{lag: 5s, spool: 1%}",
		},
		breaks: storeAway,
		begun:  "put /registry/runbook/more && served LogLagging && served SpoolFilling", // waiting data is spooled when more has arrived
		shows:  []string{"main|prod"},
		cures:  []step{by("mv /var/backups/away /var/backups/etcd")},
	}}
}
