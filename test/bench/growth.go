package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

const (
	pageSize    = 1000 // objects that a request for a listing to S3 returns
	listLimit   = 50   // requests for a list of all backups
	objectsEach = 2    // of a backup: its data and its manifest
)

// grown is a repository with many backups.
type grown struct {
	backups int
	cluster *repository.Cluster
	store   *storagetest.Faults

	plain, indexed listed
}

// listed is what lists cost.
type listed struct {
	costs    []cost
	requests int // of one list
}

// measureGrowth measures lists of many backups in S3, before and after the prune that stores their index.
func measureGrowth(ctx context.Context, o options, t testing.TB) (*grown, error) {
	server := objectstores.S3(t)
	g := &grown{backups: 10_000, store: storagetest.Faulty(openStore(t, server.URL(server.Bucket(t), ""), 1))}
	if o.quick {
		g.backups = 100
	}
	var err error
	g.cluster, err = repository.Open(g.store, "prod")
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "bench: storing %d backups\n", g.backups)
	err = records.Parallel(ctx, 16, g.backups, g.backUp)
	if err != nil {
		return nil, err
	}
	g.plain, err = g.lists(ctx, o.pairs)
	if err != nil {
		return nil, err
	}
	index := &backups.Collector{}
	_, err = g.cluster.Load(ctx, backups.LoadOptions{Collect: index})
	if err != nil {
		return nil, err
	}
	_, err = g.cluster.Prune(ctx, repository.Removal{}, repository.PruneOptions{Grace: time.Hour, Now: time.Now(), Index: index}, nil)
	if err != nil {
		return nil, err
	}
	g.indexed, err = g.lists(ctx, o.pairs)
	return g, err
}

// backUp stores backup number n, with next to no data and the manifest of a cluster of three members.
func (g *grown) backUp(ctx context.Context, n int) error {
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Hour)
	revision := int64(1000 * (n + 1))
	stored, err := g.cluster.Upload(ctx, catalog.NewID(started, revision), repository.Sealed{
		Seal: seal.Recipients{}.Seal(), Reader: bytes.NewReader([]byte("the data")),
	})
	if err != nil {
		return err
	}
	m := catalog.Manifest{
		Started: started, Finished: started.Add(2 * time.Second), DRVersion: "v1.0.0", ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.7.3",
		Revision: revision, HashKV: &catalog.HashKV{Revision: revision, CompactRevision: revision - 500, Hash: uint32(revision)},
		Plain: catalog.Blob{Name: "snapshot.db", Size: 8, SHA256: fmt.Sprintf("%064x", revision)},
	}
	for i := range 3 {
		m.Members = append(m.Members, catalog.Member{
			ID: fmt.Sprintf("8e9e05c52164694%d", i), Name: fmt.Sprintf("etcd-%d", i),
			PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", i)}, ClientURLs: []string{fmt.Sprintf("https://10.0.0.%d:2379", i)},
		})
	}
	m.Member = m.Members[0]
	_, err = stored.Commit(ctx, m)
	return err
}

// lists lists all backups some times. The first time opens connections, and does not count.
func (g *grown) lists(ctx context.Context, times int) (l listed, err error) {
	for round := range times + 1 {
		before := g.store.Calls(storagetest.VerbOpen)
		spent, err := timedHere(ctx, func(ctx context.Context) error {
			cat, err := g.cluster.Load(ctx, backups.LoadOptions{Imported: true, Proofs: true, Copies: records.AnyCopies})
			if err == nil && len(cat.Backups) != g.backups {
				err = fmt.Errorf("%d of %d backups are listed", len(cat.Backups), g.backups)
			}
			return err
		})
		if err != nil {
			return listed{}, err
		}
		if round > 0 {
			l.costs = append(l.costs, spent)
		}
		l.requests = g.store.Calls(storagetest.VerbOpen) - before + (g.backups*objectsEach+pageSize-1)/pageSize
	}
	return l, nil
}

const aboutGrowth = `
## A repository that grows

A list of %d backups in S3, before and after a prune that stores copies of their manifests in one object. A listing counts as one
request for %d objects.

| | wall | CPU | requests | limit |
|---|---|---|---|---|
`

// render returns an error if a list takes too many requests.
func (g *grown) render(b *strings.Builder) error {
	fmt.Fprintf(b, aboutGrowth, g.backups, pageSize)
	for _, l := range []struct {
		name, limit string
		listed
	}{{"before", "", g.plain}, {"after", fmt.Sprint(listLimit), g.indexed}} {
		wall, cpu := median(l.costs, func(c cost) time.Duration { return c.wall }), median(l.costs, func(c cost) time.Duration { return c.cpu })
		fmt.Fprintf(b, "| %s | %.2f s | %.2f s | %d | %s |\n", l.name, wall.Seconds(), cpu.Seconds(), l.requests, l.limit)
	}
	if g.indexed.requests > listLimit {
		return fmt.Errorf("a list of %d backups takes %d requests, the limit is %d", g.backups, g.indexed.requests, listLimit)
	}
	return nil
}
