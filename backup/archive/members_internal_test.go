package archive

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// A difference holds, in its first words, until members were seen equal in the same respect. Revisions that are equal say nothing of
// hashes, and a comparison that is not complete nothing at all.
func TestADifferenceHoldsUntilMembersWereSeenEqual(t *testing.T) {
	unequal, equal, unknown := cluster.Agreement{Difference: "later words"}, cluster.Agreement{Equal: true}, cluster.Agreement{}
	three := []catalog.Member{{ID: "1"}, {ID: "2"}, {ID: "3"}}
	for name, test := range map[string]struct {
		see  func(*members)
		want string // behind a difference of revisions, of hashes, and the alarm
	}{
		"nothing":                 {func(*members) {}, "revisions"},
		"other words":             {func(m *members) { m.seeRevisions(unequal) }, "revisions"},
		"nobody knows":            {func(m *members) { m.seeRevisions(unknown); m.seeHashes(unknown) }, "revisions"},
		"equal revisions":         {func(m *members) { m.seeRevisions(equal) }, "hashes"},
		"equal hashes":            {func(m *members) { m.seeHashes(equal) }, "the alarm CORRUPT is raised"},
		"and no alarm":            {func(m *members) { m.seeHashes(equal); m.seeAlarm(false) }, ""},
		"the same cluster":        {func(m *members) { m.resetIfChanged(&cluster.Cluster{ID: 7, Members: three}) }, "revisions"},
		"another cluster":         {func(m *members) { m.resetIfChanged(&cluster.Cluster{ID: 8, Members: three}) }, ""},
		"one member that is left": {func(m *members) { m.resetIfChanged(&cluster.Cluster{ID: 7, Members: three[:1]}) }, ""},
	} {
		var m members
		m.resetIfChanged(&cluster.Cluster{ID: 7, Members: three})
		m.seeRevisions(cluster.Agreement{Difference: "revisions"})
		m.seeHashes(cluster.Agreement{Difference: "hashes"})
		m.seeAlarm(true)
		test.see(&m)
		got := m.difference()
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Hashes are compared as often as the log gets one, and until a difference has ended at each look.
func TestWhenHashesAreCompared(t *testing.T) {
	for name, test := range map[string]struct {
		every    time.Duration
		compared bool
		differ   bool
		want     bool
	}{
		"at first":          {time.Hour, false, false, true},
		"a moment later":    {time.Hour, true, false, false},
		"while they differ": {time.Hour, true, true, true},
		"never":             {0, false, true, false},
	} {
		a := &archiver{config: Config{HashEvery: test.every}}
		if test.compared {
			a.members.hashed = time.Now()
		}
		if test.differ {
			a.members.seeHashes(cluster.Agreement{Difference: "hashes"})
		}
		got := a.mustCompareHashes()
		if got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
