package archive

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// TestMarksOfALateApply checks that all marks at a position have its revision as soon as one of them knows it.
func TestMarksOfALateApply(t *testing.T) {
	mark := func(position uint64, revision int64, second int64) segment.Mark {
		at := time.Unix(second, 0)
		return segment.Mark{Position: position, Revision: revision, Interval: segment.Interval{NotBefore: at, NotAfter: at}}
	}
	for what, test := range map[string]struct{ reported, kept []segment.Mark }{
		"known later": {
			[]segment.Mark{mark(10, 5, 1), mark(20, 0, 2), mark(20, 8, 3)},
			[]segment.Mark{mark(10, 5, 1), mark(20, 8, 2), mark(20, 8, 3)},
		},
		"known first": {
			[]segment.Mark{mark(20, 8, 1), mark(20, 0, 2), mark(20, 0, 3)},
			[]segment.Mark{mark(20, 8, 1), mark(20, 8, 3)},
		},
		"known last of three": {
			[]segment.Mark{mark(20, 0, 1), mark(20, 0, 2), mark(20, 8, 3)},
			[]segment.Mark{mark(20, 8, 1), mark(20, 8, 3)},
		},
	} {
		var p pending
		for _, m := range test.reported {
			p.mark(m)
		}
		diff := cmp.Diff(test.kept, p.marks)
		if diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
