package controller

import "testing"

// TestRemediesNameFields passes remedies that name flags through fields.
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
		"pass --recipient (DR_RECIPIENT), or --plain to store":                          "set spec.recipients, or spec.unencrypted to store",
		"otherwise check --cluster and --endpoints":                                     "otherwise check spec.cluster and spec.source",
		"pass --sign-key (DR_SIGN_KEY), or have":                                        "set the repository's signKeySecret, or have",
		"dr verify --level opened --identity KEY --repo s3://b/etcd --cluster payments": "dr verify --level opened --identity KEY --repo s3://b/etcd --cluster payments",
	} {
		got := fields.Replace(text)
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
