package cluster_test

import (
	"math"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func TestHashLimit(t *testing.T) {
	const gb = 1_000_000_000
	for name, c := range map[string]struct {
		limit   cluster.HashLimit
		inUse   int64
		allowed bool
	}{
		"nothing is known of a small one":       {cluster.HashLimit{}, 20_000_000, true},
		"nothing is known of a larger one":      {cluster.HashLimit{}, 30_000_000, false},
		"Kubernetes' objects of 2 KB":           {cluster.HashLimit{Density: catalog.Density{Entries: 1, Bytes: 2000}}, 850_000_000, true},
		"more of them":                          {cluster.HashLimit{Density: catalog.Density{Entries: 1, Bytes: 2000}}, gb, false},
		"small keys":                            {cluster.HashLimit{Density: catalog.Density{Entries: 4_000_000, Bytes: 600_000_000}}, 600_000_000, false},
		"small keys, and patience":              {cluster.HashLimit{Stall: 10 * time.Second, Density: catalog.Density{Entries: 4_000_000, Bytes: 600_000_000}}, 600_000_000, true},
		"a false density":                       {cluster.HashLimit{Density: catalog.Density{Entries: 1, Bytes: math.MaxInt64}}, 2 * gb, false},
		"a false density that is high":          {cluster.HashLimit{Density: catalog.Density{Entries: math.MaxInt64, Bytes: 1}}, gb, false},
		"a false density, a false size":         {cluster.HashLimit{Density: catalog.Density{Entries: math.MaxInt64, Bytes: 1}}, math.MaxInt64, false},
		"any size, and no limit":                {cluster.Unlimited(), math.MaxInt64, true},
		"a size of a server that does not tell": {cluster.HashLimit{}, 0, true},
	} {
		err := c.limit.Check(c.inUse)
		if (err == nil) != c.allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
