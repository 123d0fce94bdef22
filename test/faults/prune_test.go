package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// The number of backups of each cluster, and the number of those to keep.
const (
	prunedOf = 6
	prunedTo = 2
)

// storeBackups stores backups with meaningless content, one a minute, and returns the newest last.
func storeBackups(t *testing.T, b storage.Bucket, cluster string, p records.Policy) (ids []catalog.ID) {
	t.Helper()
	c, err := repository.OpenWith(b, cluster, p)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(nil)
	for i := range prunedOf {
		started := time.Now().UTC().Add(time.Duration(i-prunedOf) * time.Minute)
		id := catalog.NewID(started, int64(1000+i))
		data := bytes.NewReader([]byte(cluster + " sealed"))
		_, err := stored.CreateFrom(t.Context(), c, id, seal.Recipients{}.Seal(), data, func() (catalog.Manifest, error) {
			return catalog.Manifest{
				Started: started, Finished: started.Add(time.Second), Revision: int64(1000 + i), ClusterID: "cdf818194e3a8c32",
				Plain: catalog.Blob{Name: "snapshot.db", Size: 1000, SHA256: hex.EncodeToString(sum[:])},
			}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// deadly is a proxy to a store that kills a process at the nth request: before the store receives it, or after the
// store has executed it without answering.
type deadly struct {
	next  http.Handler
	late  bool
	nth   int64
	count atomic.Int64
	kills chan func()
}

func (d *deadly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.count.Add(1) != d.nth {
		d.next.ServeHTTP(w, r)
		return
	}
	if d.late {
		d.next.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
	}
	(<-d.kills)()
}

// listedBy returns the backups in the output of dr list.
func listedBy(t *testing.T, url, cluster string) (ids []catalog.ID) {
	t.Helper()
	var d document.List
	run(t, "list", "--repo", url, "--cluster", cluster).Succeeded(t, &d)
	for _, b := range d.Backups {
		ids = append(ids, b.ID)
	}
	return ids
}

// TestPruneKilled kills dr prune at each of its requests. Every listed backup is complete, the ones to keep are listed,
// and the next prune finishes the work. Objects of other clusters stay equal, byte for byte, even with names that begin
// with the same letters.
func TestPruneKilled(t *testing.T) {
	if testing.Short() {
		return
	}
	s := objectstores.S3Plain(t)
	objectstores.Setenv(t, s.Env())
	forward, err := s.Forward()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed(t), 7))
	t.Logf("seed %d", seed(t))
	for hits, tries := 0, 0; hits < 8; tries++ {
		if tries > 80 {
			t.Fatalf("%d hits in %d tries", hits, tries)
		}
		direct := s.URL(s.Bucket(t), "repo")
		b := bucket(t, direct)
		ids := storeBackups(t, b, "cluster1", records.Policy{})
		storeBackups(t, b, "cluster10", records.Policy{})
		storeBackups(t, b, "cluster", records.Policy{})
		others := digests(t, b)
		maps.DeleteFunc(others, func(key, _ string) bool { return strings.HasPrefix(key, "cluster1/") })
		way := &deadly{next: forward, nth: 1 + random.Int64N(60), late: random.IntN(2) == 0, kills: make(chan func(), 1)}
		proxy := httptest.NewServer(way)
		through := *s
		through.Endpoint = proxy.URL
		_, inBucket, _ := strings.Cut(direct, "://")
		name, _, _ := strings.Cut(inBucket, "/")
		p := start(t, pruneArgs(through.URL(name, "repo"))...)
		way.kills <- func() { p.Signal(t, syscall.SIGKILL) }
		o := p.Wait(t)
		if o.Code != 0 {
			hits++
		}
		proxy.Close()
		listed := listedBy(t, direct, "cluster1")
		for _, id := range ids[prunedOf-prunedTo:] {
			if !slices.Contains(listed, id) {
				t.Errorf("killed at request %d, late %v: %s is gone", way.nth, way.late, id)
			}
		}
		run(t, pruneArgs(direct)...).Succeeded(t, &struct{}{})
		listed = listedBy(t, direct, "cluster1")
		if len(listed) != prunedTo {
			t.Errorf("killed at request %d, late %v: then there are %q", way.nth, way.late, listed)
		}
		time.Sleep(1100 * time.Millisecond) // the store's times have whole seconds, and the grace is one
		run(t, pruneArgs(direct)...).Succeeded(t, &struct{}{})
		left := digests(t, b)
		maps.DeleteFunc(left, func(key, _ string) bool { return strings.HasPrefix(key, "cluster1/") })
		diff := cmp.Diff(others, left)
		if diff != "" {
			t.Errorf("killed at request %d, late %v: of others: %s", way.nth, way.late, diff)
		}
		n := len(digests(t, b)) - len(left)
		if n != 2*prunedTo+marker {
			t.Errorf("killed at request %d, late %v: %d objects are left", way.nth, way.late, n)
		}
	}
}

// marker is the object with the repository's id, which the first deletion creates and which stays.
const marker = 1

func pruneArgs(url string) []string {
	return []string{"prune", "--repo", url, "--cluster", "cluster1", "--keep-last", "2", "--grace", "1s"}
}

// TestPruneLocked checks that locked backups stay and are reported until their date, and go afterwards.
func TestPruneLocked(t *testing.T) {
	if testing.Short() {
		return
	}
	s := objectstores.S3(t)
	objectstores.Setenv(t, s.Env())
	url := s.URL(s.Bucket(t, objectstores.Locks), "repo")
	b := bucket(t, url)
	began := time.Now()
	storeBackups(t, b, "cluster1", records.Policy{Lock: records.Lock{For: 10 * time.Second}})
	var d document.Prune
	run(t, pruneArgs(url)...).Succeeded(t, &d)
	listed := listedBy(t, url, "cluster1")
	if time.Since(began) < 10*time.Second && (len(listed) != prunedOf || len(d.Locked) != prunedOf-prunedTo) {
		t.Errorf("listed are %q, named as locked %+v", listed, d.Locked)
	}
	for _, l := range d.Locked {
		if l.Until.Before(began) || l.Until.After(time.Now().Add(10*time.Second)) {
			t.Errorf("locked %+v", l)
		}
	}
	for deadline := time.Now().Add(hangs); ; time.Sleep(time.Second) {
		run(t, pruneArgs(url)...).Succeeded(t, &d)
		n := len(digests(t, b))
		if n == 2*prunedTo+marker {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d objects are left: %+v", n, d.Locked)
		}
	}
}
