package controller

import "strings"

// fields replaces the flags in remedies by the fields of an EtcdBackup. Of several that match, the first counts. Flags in command
// lines, such as --repo and --identity, stay.
var fields = strings.NewReplacer(
	"--endpoints, --cacert, --cert and --key", "spec.source",
	"--endpoints or ETCDCTL_ENDPOINTS", "spec.source",
	"--cluster and --endpoints", "spec.cluster and spec.source",
	"--endpoints", "spec.source",
	"--cacert, --cert and --key", "spec.source.tlsSecret",
	"--cacert", "spec.source.tlsSecret",
	"--cert and --key", "spec.source.tlsSecret",
	"--cert, --key", "spec.source.tlsSecret",
	"--user", "spec.source.authSecret",
	"--password-file or ETCDCTL_PASSWORD", "spec.source.authSecret",
	"pass --recipient (DR_RECIPIENT), or --plain", "set spec.recipients, or spec.unencrypted",
	"pass --sign-key (DR_SIGN_KEY)", "set the repository's signKeySecret",
)
