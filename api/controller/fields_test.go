package controller

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestRemediesNameFields passes remedies that name flags through the status of an EtcdBackup.
func TestRemediesNameFields(t *testing.T) {
	for text, want := range map[string]string{
		"start these members, or correct --endpoints, --cacert, --cert and --key":       "start these members, or correct spec.source",
		"give the CA of the server's certificate with --cacert":                         "give the CA of the server's certificate with spec.source.tlsSecret",
		"pass one that a CA it trusts has signed, with --cert and --key":                "pass one that a CA it trusts has signed, with spec.source.tlsSecret",
		"use https:// in --endpoints, and --cacert":                                     "use https:// in spec.source, and spec.source.tlsSecret",
		"use a client certificate (--cert, --key) whose CN is a user":                   "use a client certificate (spec.source.tlsSecret) whose CN is a user",
		"pass --user, or a client certificate whose CN is a user":                       "pass spec.source.authSecret, or a client certificate whose CN is a user",
		"use --password-file or ETCDCTL_PASSWORD":                                       "use spec.source.authSecret",
		"name running members with --endpoints or ETCDCTL_ENDPOINTS":                    "name running members with spec.source",
		"give --recipient (DR_RECIPIENT), or --plain to store":                          "give spec.recipients, or spec.unencrypted to store",
		"give the cluster recipients, or dr backup --recipient":                         "set spec.recipients",
		"give the cluster recipients":                                                   "set spec.recipients",
		"dr verify --level opened --identity KEY --repo s3://b/etcd --cluster payments": "dr verify --level opened --identity KEY --repo s3://b/etcd --cluster payments",
	} {
		b := scheduled("payments", "etcd")
		found := condition.Condition{Name: condition.MembersAway, Message: text, Cure: text}
		describe(b, withFields(scheduler.Status{
			State: scheduler.Failing, Problem: text, Failures: 1, Conditions: []condition.Condition{found},
			Standings: []scheduler.Standing{{Repository: "main"}}, Jobs: []scheduler.Outcome{{Job: scheduler.JobBackup, Ended: stored.Noon, Message: text}},
		}), stored.Noon)
		s := b.Status
		for _, got := range []string{s.Conditions[0].Message, s.Findings[0].Message, s.Findings[0].Cure, s.Recent[0].Message} {
			if got != want {
				t.Errorf("%s: got %s, want %s", text, got, want)
			}
		}
	}
}
