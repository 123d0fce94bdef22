package replay_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/history"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestWatchedHistories does the same as TestHistories, with a client's watch as the log.
func TestWatchedHistories(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) { compareWatched(t, version, 1) })
}

func compareWatched(t *testing.T, version string, seed uint64) {
	cluster := servers.Start(t, servers.Options{Version: version})
	random := rand.New(rand.NewPCG(seed, 3))
	var w *history.Writer
	var r *recorder
	var l lived
	look := func() {
		if r != nil {
			r.catchUp(w.Client())
			r.mark(w.Client())
			l.look(w, random)
		}
	}
	w = history.New(t, cluster, seed, history.Options{Auth: true, Alarms: true, Compacting: look})
	w.Write(100)
	base := w.Snapshot()
	r = record(t, cluster, w.Client())
	start, _, err := database.Newest(copyOf(t, base))
	if err != nil {
		t.Fatal(err)
	}
	r.next = min(r.next, start.Revision+1) // a lease may have expired since
	for range 10 {
		w.Write(60 + random.IntN(120))
		look()
	}
	t.Logf("seed %d: %s; %d marks, %d leases unknown", seed, w.Counts(), len(r.marks), r.unknown)
	r.sameRevisions(t, base, l.images)
	end := w.Snapshot()
	r.catchUp(w.Client())
	r.sameEnd(t, base, end)
}

// sameRevisions replays one database from revision to revision.
func (r *recorder) sameRevisions(t *testing.T, base string, images []database.Image) {
	t.Helper()
	db := copyOf(t, base)
	slices.SortFunc(images, func(a, b database.Image) int { return int(a.Revision - b.Revision) })
	for _, want := range images {
		at, err := replay.Apply(t.Context(), db, r.log(), replay.Options{Stop: replay.Stop{Revision: want.Revision}})
		if errors.Is(err, replay.ErrPast) {
			continue // older than the base
		}
		if err != nil || !at.Stopped || at.Position != uint64(want.Revision) {
			t.Fatalf("to revision %d: %+v, %v", want.Revision, at, err)
		}
		got, _, err := database.Newest(copyOf(t, db))
		if err != nil {
			t.Fatal(err)
		}
		found := want.Differences(got)
		if len(found) > 0 {
			t.Fatalf("at revision %d:\n%s", want.Revision, strings.Join(found, "\n"))
		}
	}
}

// sameEnd replays base to the revision of another snapshot. Every existing revision equals the other's, leases with keys
// exist, and everything that a watch does not see is unchanged.
func (r *recorder) sameEnd(t *testing.T, base, end string) replay.At {
	t.Helper()
	want, _, err := database.Newest(copyOf(t, end))
	if err != nil {
		t.Fatal(err)
	}
	db := copyOf(t, base)
	at, err := replay.Apply(t.Context(), db, r.log(), replay.Options{Stop: replay.Stop{Revision: want.Revision}})
	if err != nil || at.Revision != want.Revision || at.Proven == 0 {
		t.Fatalf("got %+v, %v; want revision %d, proven", at, err, want.Revision)
	}
	if at.GuessedLeases > r.unknown {
		t.Errorf("%d leases were guessed, %d were unknown", at.GuessedLeases, r.unknown)
	}
	got := keyBucket(t, db)
	live := keyBucket(t, end)
	if !maps.Equal(got, live) {
		t.Errorf("the key space has %d entries, live %d, or they differ", len(got), len(live))
	}
	r.sameLeases(t, want, end, db)
	for _, name := range []string{"auth", "authUsers", "authRoles", "alarm", "members", "cluster"} {
		if !maps.Equal(bucket(t, base, []byte(name)), bucket(t, db, []byte(name))) {
			t.Errorf("bucket %s has changed", name)
		}
	}
	place, term, _ := database.Place(db)
	if fmt.Sprint(database.Place(base)) != fmt.Sprint(place, term, nil) {
		t.Errorf("the consistent index has changed: %d, %d", place, term)
	}
	return at
}

// sameLeases compares the leases with keys, unless their time to live was unknown.
func (r *recorder) sameLeases(t *testing.T, image database.Image, live, replayed string) {
	t.Helper()
	a, b := bucket(t, live, []byte("lease")), bucket(t, replayed, []byte("lease"))
	for _, kv := range image.KVs {
		id := make([]byte, 8)
		for i := range id {
			id[i] = byte(kv.Lease >> (56 - 8*i))
		}
		if kv.Lease == 0 {
			continue
		}
		_, ok := b[string(id)]
		if !ok || a[string(id)] != b[string(id)] && r.unknown == 0 {
			t.Errorf("lease %x is %q, live %q", kv.Lease, b[string(id)], a[string(id)])
		}
	}
}

// watched returns the replayed result of a scene that a client watches.
func watched(t *testing.T, o servers.Options, before, do func(s scene, r *recorder)) (replay.At, string) {
	t.Helper()
	cluster := servers.Start(t, o)
	s := scene{T: t, cluster: cluster, client: cluster.Client(t)}
	s.put("base", "of the log")
	before(s, nil)
	base := s.snapshot()
	r := record(t, cluster, s.client)
	do(s, r)
	s.put("end", "of the log")
	r.catchUp(s.client)
	r.mark(s.client)
	end := s.snapshot()
	return r.sameEnd(t, base, end), end
}

func nothing(scene, *recorder) {}

func TestLargeChanges(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		o := servers.Options{Version: version, ExtraArgs: []string{"--max-txn-ops", "10001", "--max-request-bytes", "4000000"}}
		watched(t, o, nothing, func(s scene, _ *recorder) { s.largeRequests() })
	})
}

// Authentication and alarms of the base do not refuse recorded changes.
func TestBaseWithAuthAndAlarm(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		raise := func(s scene, _ *recorder) { s.raise(etcdserverpb.AlarmType_NOSPACE) }
		at, _ := watched(t, servers.Options{Version: version, Auth: true}, raise, func(s scene, _ *recorder) {
			_, err := s.client.AlarmDisarm(s.Context(), &clientv3.AlarmMember{})
			s.must("disarm", err)
			lease, err := s.client.Grant(s.Context(), 300)
			s.must("grant", err)
			alice := s.cluster.Client(s.T, servers.As(servers.User, s.cluster.UserPassword))
			_, err = alice.Put(s.Context(), servers.UserPrefix+"a", "x", clientv3.WithLease(lease.ID))
			s.must("put", err)
			_, err = alice.Txn(s.Context()).Then(clientv3.OpPut(servers.UserPrefix+"b", "x"), clientv3.OpDelete(servers.UserPrefix+"a")).Commit()
			s.must("transaction", err)
			s.put("rooted", "x")
		})
		if at.Requests != 4 {
			t.Errorf("got %+v, want four requests", at)
		}
	})
}

// The base is older than the compactions; the target is before, at or after them. Tombstones at their revisions follow the
// rules of the version.
func TestCompactionsUnderAWatch(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		cluster := servers.Start(t, servers.Options{Version: version})
		s := scene{T: t, cluster: cluster, client: cluster.Client(t)}
		for n := range 20 {
			s.put(fmt.Sprint("key/", n%5), "before")
		}
		base := s.snapshot()
		r := record(t, cluster, s.client)
		for n := range 8 {
			s.put(fmt.Sprint("key/", n), "again")
			deleted, err := s.client.Delete(s.Context(), "key/", clientv3.WithPrefix())
			s.must("delete", err)
			s.put("key/3", "back")
			r.catchUp(s.client)
			r.mark(s.client) // computed from the compaction before
			_, err = s.client.Compact(s.Context(), deleted.Header.Revision-int64(n%3), clientv3.WithCompactPhysical())
			s.must("compact", err)
			r.mark(s.client) // and from this one, at the same revision
			s.put("key/4", "back")
			r.catchUp(s.client)
			r.sameEnd(t, base, s.snapshot())
		}
		s.furtherBases(r)
	})
}

// furtherBases replays onto databases that already contain the whole log, one of them compacted further: nothing changes.
func (s scene) furtherBases(r *recorder) {
	s.Helper()
	end := s.snapshot()
	db := copyOf(s.T, end)
	_, err := s.client.Compact(s.Context(), r.next-1, clientv3.WithCompactPhysical())
	s.must("compact", err)
	compacted := s.snapshot()
	for _, path := range []string{db, compacted} {
		at, err := replay.Apply(s.Context(), path, r.log(), replay.Options{})
		if err != nil || at.Requests != 0 {
			s.Errorf("from the end: %+v, %v", at, err)
		}
	}
	if !maps.Equal(keyBucket(s.T, db), keyBucket(s.T, end)) {
		s.Error("a replay of nothing has changed the key space")
	}
}

// A lease that is kept alive exists with its key; a lease that ends deletes its keys.
func TestLeasesUnderAWatch(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		t.Parallel() // the test mostly waits
		_, end := watched(t, servers.Options{Version: version}, nothing, func(s scene, r *recorder) {
			kept, err := s.client.Grant(s.Context(), 20)
			s.must("grant", err)
			_, err = s.client.KeepAlive(s.Context(), kept.ID)
			s.must("keep alive", err)
			s.put("kept", "alive", clientv3.WithLease(kept.ID))
			ends, err := s.client.Grant(s.Context(), 2)
			s.must("grant", err)
			for n := range 5 {
				s.put(fmt.Sprint("ends/", n), "soon", clientv3.WithLease(ends.ID))
			}
			r.catchUp(s.client)
			time.Sleep(25 * time.Second) // longer than either lives without being kept alive
		})
		image, _, err := database.Newest(copyOf(t, end))
		all := fmt.Sprint(image.KVs)
		if err != nil || !strings.Contains(all, `"kept"`) || strings.Contains(all, "ends/") {
			t.Errorf("the leases have not done what the test is about: %v, %s", err, all)
		}
	})
}
