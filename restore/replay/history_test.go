package replay_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/history"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// lived is the history of a server, with snapshots and images of its states.
type lived struct {
	version   string
	snapshots []string // the first is the base
	images    []database.Image
	marks     []segment.Record
	requests  []segment.Record
}

func (l lived) exempt() database.Exempt { return database.Exempt{Passwords: l.version == "3.4"} }

// live writes a random history to a server and records its state from time to time.
func live(t *testing.T, version string, seed uint64, snapshots, images int) lived {
	t.Helper()
	cluster := servers.Start(t, servers.Options{Version: version})
	l := lived{version: version}
	random := rand.New(rand.NewPCG(seed, 2))
	var w *history.Writer
	look := func() {
		if len(l.snapshots) > 0 && len(l.images) < images {
			l.look(w, random)
		}
	}
	w = history.New(t, cluster, seed, history.Options{Auth: true, Alarms: true, Compacting: look})
	l.marks = serverVersion(t, w.Client(), cluster)
	w.Write(60)
	l.snapshots = append(l.snapshots, w.Snapshot())
	for len(l.snapshots) <= snapshots || len(l.images) < images {
		w.Write(40 + random.IntN(120))
		l.marks = append(l.marks, takeMarks(t, cluster, w.Client())...)
		look()
		if len(l.snapshots) <= snapshots {
			l.snapshots = append(l.snapshots, w.Snapshot())
		}
	}
	t.Logf("seed %d: %s", seed, w.Counts())
	cluster.StopAll(t)
	l.requests = readLog(t, cluster.Members[0])
	return l
}

// look reads the key space at the newest revision and at an older one that still exists.
func (l *lived) look(w *history.Writer, random *rand.Rand) {
	newest := w.Image(0)
	l.images = append(l.images, newest)
	since := int64(1)
	n := len(l.images)
	if n > 1 {
		since = l.images[n-2].Revision
	}
	between := since + 1 + random.Int64N(max(1, newest.Revision-since))
	image, err := w.TryImage(between)
	if err == nil {
		l.images = append(l.images, image)
	}
}

// TestHistories replays random histories and compares with the server that lived them.
func TestHistories(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) { compareWithLive(t, version, 1, 10, 25) })
}

func TestHistoriesSoak(t *testing.T) {
	soak.Only(t, "takes minutes")
	seed := uint64(setting(t, "ETCD_DR_SEED", 1))
	forEachVersion(t, func(t *testing.T, version string) {
		for n := range uint64(8) {
			t.Run(fmt.Sprint("seed ", seed+n), func(t *testing.T) { compareWithLive(t, version, seed+n, 25, 25) })
			t.Run(fmt.Sprint("watched, seed ", seed+n), func(t *testing.T) { compareWatched(t, version, seed+n) })
		}
	})
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func forEachVersion(t *testing.T, test func(t *testing.T, version string)) {
	if testing.Short() {
		t.Skip("real servers are slow")
	}
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

func compareWithLive(t *testing.T, version string, seed uint64, snapshots, images int) {
	l := live(t, version, seed, snapshots, images)
	t.Run("buckets", l.compareBuckets)
	t.Run("revisions", l.compareRevisions)
}

// compareBuckets replays from the base to each later snapshot.
func (l lived) compareBuckets(t *testing.T) {
	for n, snapshot := range l.snapshots[1:] {
		position, _, err := database.Place(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		db := copyOf(t, l.snapshots[0])
		at := apply(t, db, inSegments(l.marks, l.requests), replay.Stop{Position: position})
		same(t, fmt.Sprintf("snapshot %d at position %d, replay at %+v", n+1, position, at), snapshot, db, l.exempt())
		sameHash(t, snapshot, db)
		if n == len(l.snapshots)-2 {
			l.compareWithStore(t, db, at)
		}
		if n > 2 && at.Marked == 0 {
			t.Errorf("no mark was compared on the way to %+v", at)
		}
		if t.Failed() {
			return
		}
	}
}

// compareWithStore compares a replay of the whole log with one by etcd's own store.
func (l lived) compareWithStore(t *testing.T, replayed string, want replay.At) {
	t.Helper()
	db := copyOf(t, l.snapshots[0])
	stop := replay.Options{Stop: replay.Stop{Position: want.Position}}
	got, err := replay.ApplyWithStore(t.Context(), db, fromWAL(inSegments(l.marks, l.requests)), stop)
	if err != nil || got != want {
		t.Errorf("with etcd's store %+v, %v, otherwise %+v", got, err, want)
	}
	same(t, "with etcd's store and without", db, replayed, l.exempt())
}

func sameHash(t *testing.T, a, b string) {
	t.Helper()
	imageA, hashA, err := database.Newest(copyOf(t, a))
	if err != nil {
		t.Fatal(err)
	}
	imageB, hashB, err := database.Newest(copyOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	found := imageA.Differences(imageB)
	if len(found) > 0 || hashA != hashB {
		t.Errorf("hash %+v and %+v:\n%s", hashA, hashB, strings.Join(found, "\n"))
	}
}

// compareRevisions replays one database from revision to revision.
func (l lived) compareRevisions(t *testing.T) {
	db := copyOf(t, l.snapshots[0])
	slices.SortFunc(l.images, func(a, b database.Image) int { return int(a.Revision - b.Revision) })
	for _, want := range l.images {
		base, _, err := database.Newest(copyOf(t, db))
		if err != nil {
			t.Fatal(err)
		}
		if want.Revision < base.Revision {
			continue
		}
		at := apply(t, db, inSegments(l.marks, l.requests), replay.Stop{Revision: want.Revision})
		if !at.Stopped {
			t.Fatalf("revision %d was not reached: %+v", want.Revision, at)
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

func serverVersion(t testing.TB, client *clientv3.Client, c *servers.Cluster) []segment.Record {
	t.Helper()
	status, err := client.Status(t.Context(), c.Members[0].ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	return []segment.Record{{Kind: segment.ServerVersion, Data: []byte(status.Version)}}
}
