package repository_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// A listing shows a backup once its manifest is stored.
func Example() {
	ctx := context.Background()
	prod, err := repository.Open(mem.New(), "prod")
	if err != nil {
		log.Fatal(err)
	}
	began := time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC)
	upload, err := prod.Upload(ctx, catalog.NewID(began, 4711), repository.Sealed{Seal: seal.Recipients{}.Seal(), Reader: strings.NewReader("sealed")})
	if err != nil {
		log.Fatal(err)
	}
	_, err = upload.Commit(ctx, catalog.Manifest{
		Started: began, Finished: began.Add(time.Second), ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.6.5", Revision: 4711,
		Plain: catalog.Blob{Name: catalog.SnapshotName, Size: 20480, SHA256: strings.Repeat("ab", 32)},
	})
	if err != nil {
		log.Fatal(err)
	}
	c, err := prod.Load(ctx, backups.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	newest, err := c.Latest()
	fmt.Println(newest.ID, newest.Revision, err)
	// Output:
	// 20261121T100000Z-0000000000001267 4711 <nil>
}
