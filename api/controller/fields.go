package controller

import (
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/scheduler"
)

// fields replaces the flags in remedies with the fields of an EtcdBackup. Of several that match, the first counts. Flags in command
// lines, such as --repo and --identity, stay.
var fields = strings.NewReplacer(
	"--endpoints, --cacert, --cert and --key", "spec.source",
	"--endpoints or ETCDCTL_ENDPOINTS", "spec.source",
	"--endpoints", "spec.source",
	"--cacert, --cert and --key", "spec.source.tlsSecret",
	"--cacert", "spec.source.tlsSecret",
	"--cert and --key", "spec.source.tlsSecret",
	"--cert, --key", "spec.source.tlsSecret",
	"--user", "spec.source.authSecret",
	"--password-file or ETCDCTL_PASSWORD", "spec.source.authSecret",
	"give the cluster recipients, or dr backup --recipient", "set spec.recipients",
	"give the cluster recipients", "set spec.recipients",
	"--recipient (DR_RECIPIENT), or --plain", "spec.recipients, or spec.unencrypted",
)

// withFields returns a copy of s whose texts name fields of an EtcdBackup in place of flags.
func withFields(s scheduler.Status) scheduler.Status {
	s.Problem = fields.Replace(s.Problem)
	s.Jobs, s.Conditions, s.Standings = slices.Clone(s.Jobs), slices.Clone(s.Conditions), slices.Clone(s.Standings)
	for i := range s.Jobs {
		s.Jobs[i].Message = fields.Replace(s.Jobs[i].Message)
	}
	for i := range s.Conditions {
		s.Conditions[i].Message, s.Conditions[i].Cure = fields.Replace(s.Conditions[i].Message), fields.Replace(s.Conditions[i].Cure)
	}
	for i := range s.Standings {
		s.Standings[i].Problem = fields.Replace(s.Standings[i].Problem)
	}
	return s
}
