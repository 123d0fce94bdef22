package runbooks

import "time"

func serviceWalks() []walk {
	return []walk{{
		pages:   []string{"BackupFailing"},
		service: true,
		cluster: map[string]string{
			"etcd":       "{endpoints: [https://10.0.0.1:2378], cacert: /etc/etcd/ca.crt, cert: /etc/etcd/client.crt, key: /etc/etcd/client.key}",
			"conditions": "{failures: 1}",
		},
		breaks: []step{by("systemctl start etcd-dr-serve"), wait("journalctl -u etcd-dr-serve | grep 2378")},
		shows:  []string{"2378"},
		cures:  []step{by("sed -i s/2378/2379/ /etc/etcd-dr/dr.yaml"), page(takeBackup)},
	}, {
		pages:   []string{"RetentionFailing"},
		service: true,
		cluster: map[string]string{"retention": "{last: 1}"},
		breaks: []step{
			aBackup, dated(-time.Hour), by("mount --bind /var/backups/etcd/prod/backups/$(ids) /var/backups/etcd/prod/backups/$(ids)"),
			by("mount -o remount,bind,ro /var/backups/etcd/prod/backups/$(ids)"),
			by("systemctl start etcd-dr-serve"), wait("curl -sf http://127.0.0.1:2391/healthz"), page(`dr trigger --cluster "$DR_CLUSTER"`),
		},
		shows: []string{"remove"},
		cures: []step{by("umount /var/backups/etcd/prod/backups/$(ids | tail -n 1)"), page(`dr trigger --cluster "$DR_CLUSTER"`)},
		over:  `unserved RetentionFailing && serves '.clusters[].unpruned == null'`,
	}, {
		pages:  []string{"ServiceDown"},
		breaks: []step{aBackup, by("systemctl start etcd-dr-serve; systemctl stop etcd-dr-serve")},
		begun:  "! curl -sf http://127.0.0.1:2391/healthz",
		shows:  []string{"inactive"},
		cures:  []step{page("systemctl restart etcd-dr-serve"), page(takeBackup)},
		over:   "curl -sf http://127.0.0.1:2391/healthz && curl -sS http://127.0.0.1:2391/metrics | grep etcd_dr_config_loaded_timestamp_seconds",
	}, {
		pages:  []string{"InstanceDown"},
		breaks: agentRuns(by("systemctl start etcd-dr-serve; systemctl stop etcd-dr-archive")),
		begun:  "! curl -sf http://127.0.0.1:2390/metrics",
		shows:  []string{"etcd-dr-archive - inactive"},
		cures:  []step{by("systemctl start etcd-dr-archive")},
		over:   "curl -sf http://127.0.0.1:2390/metrics && curl -sf http://127.0.0.1:2391/metrics",
	}, {
		pages:   []string{"ConfigRefused"},
		service: true,
		breaks: []step{
			aBackup, by("sed -n '/^  prod:/,$ { s/prod:/other:/; p }' /etc/etcd-dr/dr.yaml >>/etc/etcd-dr/dr.yaml"), // it can be used
			by("systemctl start etcd-dr-serve"), wait("curl -sf http://127.0.0.1:2391/healthz"),
			by("sed -i '0,/schedule:/ s//shedule:/' /etc/etcd-dr/dr.yaml"), wait("metric 2391 etcd_dr_config_refused 'value > 0'"),
		},
		shows: []string{"shedule", "refused"},
		cures: []step{by("sed -i 's/shedule:/schedule:/' /etc/etcd-dr/dr.yaml"), page("systemctl reload etcd-dr-serve"), page("dr config check")},
		over:  "unserved ConfigRefused && metric 2391 etcd_dr_config_refused 'value == 0' && journalctl -u etcd-dr-serve | grep 'is in effect'",
	}, {
		pages:   []string{"Suspended"},
		cluster: map[string]string{"schedule": `{cron: "@daily"}`},
		breaks:  []step{aBackup, by(`dr suspend --reason "a test"`)},
		begun:   "dr status --config /etc/etcd-dr/dr.yaml | grep suspended",
		shows:   []string{"suspended"},
		cures:   []step{page(takeBackup), page("dr resume")},
		over:    "! dr status --config /etc/etcd-dr/dr.yaml | grep suspended",
	}}
}
