package restores

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestSuspendedMessage checks that the message names spec.suspend while it has an effect, and not once members are down.
func TestSuspendedMessage(t *testing.T) {
	e := &v1alpha1.EtcdRestore{Spec: v1alpha1.EtcdRestoreSpec{Suspend: true}}
	for down, waits := range map[time.Time]bool{{}: true, time.Unix(1, 0): false} {
		describe(e, handoff.Record{Phase: handoff.Staging, Step: handoff.Suspend, Down: down})
		if strings.Contains(e.Status.Message, "spec.suspend") != waits {
			t.Errorf("down since %s: %q", down, e.Status.Message)
		}
	}
}

// TestRemediesNameFields passes remedies of the tasks on the disks, which name flags, through fields.
func TestRemediesNameFields(t *testing.T) {
	for text, want := range map[string]string{
		"refused: /data/member/wal has no log: name etcd's --wal-dir with --wal-dir; if": "refused: /data/member/wal has no log: set spec.into.walDir to etcd's --wal-dir; if",
		"--wal-dir /wal has no log: name the directory that etcd's --wal-dir names":      "spec.into.walDir /wal has no log: set it to etcd's --wal-dir",
		"has a log: omit --wal-dir if etcd runs without it":                              "has a log: omit spec.into.walDir if etcd runs without it",
		"name where the log is now with --wal-dir":                                       "set spec.into.walDir to where the log is now",
		"remove /x and, if etcd has a --wal-dir, .dr-swap-*-1":                           "remove /x and, if etcd has a --wal-dir, .dr-swap-*-1",
		"or name the members as they are with --initial-cluster: m1":                     "or name the members in spec.into.members as they are: m1",
		"--wal-dir /wal is a mount point":                                                "spec.into.walDir /wal is a mount point",
	} {
		got := fields.Replace(text)
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestTokensDiffer plans two restores of one state: a member that the first one left over must not join the second.
func TestTokensDiffer(t *testing.T) {
	m := stored.ManifestOf(stored.Content, stored.IDAt(0).Started())
	m.ID, m.Cluster, m.Members = stored.IDAt(0), "c", stored.ThreeMembers()
	m.Seal, m.Stored = seal.Recipients{}.Seal(), catalog.Blob{Name: "snapshot.db.zst", Size: 1, SHA256: m.Plain.SHA256}
	c := catalog.Catalog{Cluster: "c", Backups: []catalog.Backup{{Manifest: m}}}
	tokens := map[string]bool{}
	for _, id := range []string{"0123456789abcdef", "fedcba9876543210"} {
		p, err := plan.New(c, plan.Target{}, layoutOf(&v1alpha1.EtcdRestore{}, id), m.Started.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		tokens[p.Token] = true
	}
	if len(tokens) != 2 {
		t.Errorf("one token for two restores: %v", tokens)
	}
}
