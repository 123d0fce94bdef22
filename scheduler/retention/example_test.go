package retention_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func ExamplePlan() {
	now := time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)
	c := catalog.Catalog{Cluster: "prod"}
	for n := range 4 {
		began := now.Add(-time.Duration(n) * 12 * time.Hour)
		c.Backups = append(c.Backups, catalog.Backup{Manifest: catalog.Manifest{
			ID: catalog.NewID(began, int64(100-n)), Cluster: "prod", Started: began, Finished: began, Revision: int64(100 - n),
		}})
	}
	decisions, err := retention.Plan(c, retention.Policy{Last: 1, Daily: 2}, now)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range decisions.Backups {
		fmt.Println(d.Started.Format(time.DateTime), d.Keep, strings.Join(d.Reasons, ", "))
	}
	// Output:
	// 2026-11-21 12:00:00 true last 1, daily 1, the newest
	// 2026-11-21 00:00:00 false no rule keeps it
	// 2026-11-20 12:00:00 true daily 2
	// 2026-11-20 00:00:00 false no rule keeps it
}
