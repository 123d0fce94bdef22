package archive_test

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/embedded"
)

// TestARequestThatCannotBeReplayedIsAGap checks that the agent records a gap for such a request, takes a backup, and continues the
// same lineage, also if the request is the first that it reads.
func TestARequestThatCannotBeReplayedIsAGap(t *testing.T) {
	for name, restarted := range map[string]bool{"while it works": false, "while it is stopped": true} {
		t.Run(name, func(t *testing.T) {
			etcd, c := embedded.Start(t, nil), open(t, mem.New())
			a := start(t, configOf(etcd), c)
			put(t, etcd, "before")
			a.catchUp()
			writeUntilBased(t, etcd, c, 1)
			if restarted {
				a.stop()
			}
			for range 2 {
				changeOnUnknownResult(t, etcd)
			}
			if restarted {
				a = start(t, configOf(etcd), c)
			}
			a.catchUp()
			writeUntilBased(t, etcd, c, 2)
			catalog, err := c.Load(t.Context(), backups.LoadOptions{Log: true})
			if err != nil {
				t.Fatal(err)
			}
			gaps := catalog.Gaps()
			if len(catalog.Lineages) != 1 || len(gaps) != 1 || !strings.Contains(gaps[0].Reason, "cannot be replayed") {
				t.Errorf("%d lineages, gaps %+v, want one and one", len(catalog.Lineages), gaps)
			}
		})
	}
}

// changeOnUnknownResult makes a transaction with a comparison whose result etcd does not know, which etcd takes as true.
func changeOnUnknownResult(t *testing.T, etcd *embedded.Server) {
	t.Helper()
	unknown := clientv3.FromCompare(&etcdserverpb.Compare{Key: []byte("before"), Result: 7})
	done, err := etcd.Client(t).Txn(t.Context()).If(unknown).Then(clientv3.OpPut("unknown", "value")).Commit()
	if err != nil || !done.Succeeded {
		t.Fatalf("%v, %v", done, err)
	}
}
