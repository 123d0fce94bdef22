package config_test

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

// TestKeysReplaceFlags passes the remedies of the jobs that name flags through Keys.
func TestKeysReplaceFlags(t *testing.T) {
	for text, want := range map[string]string{
		"start these members, or correct --endpoints, --cacert, --cert and --key": "start these members, or correct etcd.endpoints, etcd.cacert, etcd.cert and etcd.key",
		"name running members with --endpoints or ETCDCTL_ENDPOINTS":              "name running members with etcd.endpoints",
		"otherwise check --cluster and --endpoints":                               "otherwise check the cluster's name and etcd.endpoints",
		"pass --user, or a client certificate whose CN is a user":                 "pass etcd.user, or a client certificate whose CN is a user",
		"use --password-file or ETCDCTL_PASSWORD":                                 "use etcd.passwordFile or etcd.passwordEnv",
		"pass --recipient (DR_RECIPIENT), or --plain to store every secret":       "set recipients, or backup.plain to store every secret",
		"pass --sign-key (DR_SIGN_KEY), or":                                       "set the repository's signKeyFile, or",
		"no healthy follower answers: use --from any or --from leader":            "no healthy follower answers: use backup.from any or backup.from leader",
		"5m0s allowed by --max-stream: --spool DIR takes the stream to disk":      "5m0s allowed by backup.maxStream: backup.spool takes the stream to disk",
		"bad agent settings: --spool: another agent uses /s":                      "bad agent settings: archive.spool: another agent uses /s",
		"about 2s for about 2.5M entries, --hash-max is 500ms":                    "about 2s for about 2.5M entries, backup.hashMax is 500ms",
		"update it, or use --source wal":                                          "update it, or use dr archive --source wal",
		"pass its file with --identity (or --passphrase-file)":                    "pass its file with drill.identityFiles (or drill.passphraseFile)",
		"--skip-plain leaves out unencrypted objects, --allow-plain uses them":    "drill.allowPlain uses it",
		"compact and defragment, or raise --quota-backend-bytes":                  "compact and defragment, or raise --quota-backend-bytes",
	} {
		got := config.Keys.Replace(text)
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
