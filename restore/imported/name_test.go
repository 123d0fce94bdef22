package imported_test

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/imported"
)

func TestParseName(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, want := range map[string]imported.Name{
		"Full-00000000-00123456-1772600767":           {Tool: "Gardener", Written: at},
		"Full-00000000-00123456-1772600767.gz":        {Tool: "Gardener", Written: at},
		"Incr-00123457-00123458-1772600767.zlib":      {Tool: "Gardener", Written: at, Unusable: "it is a delta: only full snapshots can be imported"},
		"etcd.backup_v1024_2026-03-04-05:06:07":       {Tool: "etcd-operator", Written: at},
		"prod_v1_1024_2026-03-04-05:06:07":            {Tool: "etcd-operator", Written: at},
		"3.2.13_00000000000003e8_etcd.backup":         {Tool: "etcd-operator"},
		"etcd-snapshot-node-1-1772600767":             {Tool: "k3s", Written: at},
		"on-demand-ip-10-0-0-1-1772600767.zip":        {Tool: "k3s", Written: at},
		"2026-03-04T05:06:07Z_etcd":                   {Tool: "RKE", Written: at},
		"c-abc12-rs-xyz_2026-03-04T05:06:07Z.zip":     {Tool: "RKE", Written: at},
		"db-2026-03-04_05-06":                         {Tool: "bitnami", Written: at.Truncate(time.Minute)},
		"etcd.backup_v1024_2026-13-04-05:06:07":       {Tool: "etcd-operator"}, // no such month
		"Full-0-1-99999999999999999999":               {Tool: "Gardener"},
		"snapshot.db":                                 {},
		"etcd-snapshot-1772600767-of-another-program": {},
	} {
		got := imported.ParseName(name)
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
