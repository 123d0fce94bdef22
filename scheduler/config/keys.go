package config

import "strings"

// Keys replaces the flags in remedies by the keys of dr.yaml. Of several that match, the first counts. Texts with whole command lines
// must not pass it: it would change their flags too.
var Keys = strings.NewReplacer(
	"--endpoints or ETCDCTL_ENDPOINTS", "etcd.endpoints",
	"--cluster and --endpoints", "the cluster's name and etcd.endpoints",
	"--endpoints", "etcd.endpoints",
	"--cacert", "etcd.cacert",
	"--cert", "etcd.cert",
	"--key", "etcd.key",
	"--user", "etcd.user",
	"--password-file or ETCDCTL_PASSWORD", "etcd.passwordFile or etcd.passwordEnv",
	"pass --recipient (DR_RECIPIENT)", "set recipients",
	"--plain", "backup.plain",
	"pass --sign-key (DR_SIGN_KEY)", "set the repository's signKeyFile",
	"--from", "backup.from",
	"--hash-max", "backup.hashMax",
	"--max-stream", "backup.maxStream",
	"--spool DIR", "backup.spool",
	"--spool:", "archive.spool:",
	"--source wal", "dr archive --source wal",
	"--identity (or --passphrase-file)", "drill.identityFiles (or drill.passphraseFile)",
	"--skip-plain leaves out unencrypted objects, --allow-plain uses them", "drill.allowPlain uses it",
)
