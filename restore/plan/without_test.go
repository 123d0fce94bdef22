package plan_test

import (
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// planOf returns a plan that replaces the old members by new ones.
func planOf(before, after string) (p plan.Plan) {
	for _, name := range strings.Fields(before) {
		p.Old.Members = append(p.Old.Members, catalog.Member{Name: strings.TrimSuffix(name, "*"), Learner: strings.HasSuffix(name, "*")})
	}
	for _, name := range strings.Fields(after) {
		p.Members = append(p.Members, plan.Member{Name: name})
	}
	return p
}

// TestCheckWithout checks that neither cluster can have a quorum of its own while members are left out.
func TestCheckWithout(t *testing.T) {
	for _, c := range []struct{ before, after, without, says string }{
		{"a b c", "a b c", "c", ""},
		{"a b c", "a b c", "a c", "no quorum of 3"},
		{"a b c", "a b c", "d", "no such member"},
		{"a b c", "a b", "c", ""}, // which is lost, and comes back
		{"a b c", "a b", "b", "no quorum of 2"},
		{"a", "a b c", "a", "a quorum of the old cluster"},
		{"a b c", "a b c d e", "a b", "a quorum of the old cluster"},
		{"a b c", "a b c d e", "d e", ""},
		{"a b* c", "a b c d e", "a b", ""}, // a learner has no vote
		{"a b c d", "a b c d", "c d", "no quorum of 4"},
		{"", "a b c", "c", ""},
	} {
		err := planOf(c.before, c.after).CheckWithout(strings.Fields(c.without))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q to %q without %q: %v, want %q", c.before, c.after, c.without, err, c.says)
		}
	}
}
