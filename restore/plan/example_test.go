package plan_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// A plan needs only a catalog: nothing is read or written.
func ExampleNew() {
	began := time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC)
	c := catalog.Catalog{Cluster: "prod", Backups: []catalog.Backup{{Manifest: catalog.Manifest{
		ID: catalog.NewID(began, 4711), Cluster: "prod", Started: began, Finished: began.Add(time.Second),
		ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.6.5", Revision: 4711, RevisionMax: 4711,
		Plain:  catalog.Blob{Name: catalog.SnapshotName, Size: 20480, SHA256: strings.Repeat("ab", 32)},
		Seal:   seal.Recipients{}.Seal(),
		Stored: catalog.Blob{Name: "snapshot.db.zst", Size: 4096, SHA256: strings.Repeat("cd", 32)},
	}}}}
	members, err := plan.ParseMembers("m1=https://10.0.0.1:2380")
	if err != nil {
		log.Fatal(err)
	}
	layout := plan.Layout{Members: members, Into: plan.Into{OutputDir: "/srv/restored"}}
	p, err := plan.New(c, plan.Target{Revision: 4711}, layout, began.Add(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Backup.ID, p.Reach.Revision)

	_, err = plan.New(c, plan.Target{Revision: 9000}, layout, began.Add(time.Hour))
	fmt.Println(err)
	// Output:
	// 20261121T100000Z-0000000000001267 4711
	// the target is not in the repository: revision 9000 is in the future: the newest known is 4711; the nearest restorable point is backup 20261121T100000Z-0000000000001267, revision 4711 at 2026-11-21T10:00:00.000Z: restore that, or add --best
}
