package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
)

// rebuild deletes the etcd cluster with its data, and starts an empty one at the same address: with another cluster ID if its token is
// another one.
func (o *operated) rebuild(t *testing.T, token string) {
	t.Helper()
	member := o.etcd.Members[0]
	o.etcd.Kill(t, 0)
	err := os.RemoveAll(member.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		member.ExtraArgs = []string{"--initial-cluster-token", token}
	}
	o.etcd.Restart(t)
}

// changed reports whether the status, an event and the condition Protected report that the cluster is another one.
func (o *operated) changed(t *testing.T) bool {
	t.Helper()
	s := o.status(t, "etcd")
	found := slices.ContainsFunc(s.Findings, func(f struct{ Name, Severity string }) bool {
		return f.Name == "ClusterChanged" && f.Severity == "critical"
	})
	events := o.api.Kubectl(t, "", "-n", "payments", "get", "events", "--field-selector", "type=Warning")
	return found && strings.HasPrefix(s.condition("Protected"), "False ClusterChanged: ") && strings.Contains(events, "ClusterChanged (critical)")
}

// contains reports whether the store contains all of the backups.
func (o *operated) contains(t *testing.T, all []document.Backup) bool {
	t.Helper()
	left := o.list(t)
	for _, b := range all {
		if !slices.ContainsFunc(left, func(l document.Backup) bool { return l.ID == b.ID }) {
			return false
		}
	}
	return true
}

// TestOperatorSeesARebuiltCluster deletes a cluster with its volumes: it comes back empty at the same address, first with another cluster
// ID, then with the same one, as a StatefulSet would. Backups from before outlive the rules of retention until the change is confirmed.
func TestOperatorSeesARebuiltCluster(t *testing.T) {
	o := newOperated(t)
	o.start(t)
	o.api.Kubectl(t, o.object("etcd", "  schedule: {cron: \"@every 3s\"}\n  retention: {last: 2}"), "apply", "-f", "-")
	first := ""
	eventually(t, "the first backup is taken", func() bool { first = o.status(t, "etcd").Last.ID; return first != "" })
	eventually(t, "retention removes it", func() bool {
		all := o.list(t)
		return len(all) >= 2 && string(all[len(all)-1].ID) > first
	})
	for _, token := range []string{"rebuilt", ""} {
		for range 9 {
			put(t, o.etcd.Client(t), "order", "1")
		}
		eventually(t, "a backup contains the orders", func() bool { return o.status(t, "etcd").Last.Revision >= 9 })
		o.rebuild(t, token)
		before := o.list(t)
		newest := string(before[0].ID)
		eventually(t, "the change is reported", func() bool { return o.changed(t) })
		eventually(t, "backups of the empty cluster are taken and removed", func() bool {
			all := o.list(t)
			return string(all[0].ID) > newest && all[0].ClusterID != "" && len(all) > 2
		})
		if !o.contains(t, before[:2]) {
			t.Errorf("of the backups from before, %+v, there are %+v", before, o.list(t))
		}
		command.Must(t, o.store.Env(), "pin", "latest", "--confirm", "--reason", "rebuilt on purpose",
			"--repo", o.store.URL(o.bucket, "etcd"), "--cluster", "payments.etcd")
		eventually(t, "the confirmed cluster is protected", func() bool {
			return strings.HasPrefix(o.status(t, "etcd").condition("Protected"), "True ") && !o.changed(t)
		})
		eventually(t, "retention removes the backups from before", func() bool { return !o.contains(t, before[1:2]) })
	}
	o.service.Stop(t)
}
