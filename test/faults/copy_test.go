package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// copied is a repository of two clusters that is copied to another one.
type copied struct {
	from, to string // URLs
	want     map[string]string
}

// began is the start of the oldest object: the others follow at intervals of a minute.
var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	copiedBackups  = 6
	copiedSegments = 60
)

// newCopied fills a repository without a server: a copy does not interpret the contents of backups and segments.
func newCopied(t *testing.T, to string) copied {
	t.Helper()
	c := copied{from: "file://" + filepath.Join(t.TempDir(), "from"), to: to, want: map[string]string{}}
	b := bucket(t, c.from)
	for _, name := range []string{"other", clusterName} {
		fillCluster(t, b, name)
	}
	c.want = digests(t, b)
	deleted := backupsOf(clusterName) + string(backupID(1))
	maps.DeleteFunc(c.want, func(key, _ string) bool {
		return strings.HasPrefix(key, deleted) || strings.HasSuffix(key, "/repository.json")
	})
	return c
}

func bucket(t *testing.T, url string) storage.Bucket {
	t.Helper()
	b, err := stores.Create(t.Context(), url, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func backupsOf(cluster string) string { return cluster + "/backups/" }

func backupID(n int) catalog.ID {
	return catalog.NewID(began.Add(time.Duration(n)*10*time.Minute), int64(1000+n))
}

func fillCluster(t *testing.T, b storage.Bucket, name string) {
	t.Helper()
	c, err := repository.Open(b, name)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{byte(len(name))})
	for n := range copiedBackups {
		storeBackup(t, c, backupID(n), random, 1<<20+n)
	}
	storeLog(t, c, random)
	proof := catalog.Proof{
		Backup: backupID(2), Level: catalog.Hashed, Verdict: catalog.Passed, Finding: "no fault found",
		Time: began, By: "test",
	}
	err = c.Append(t.Context(), proof)
	if err != nil {
		t.Fatal(err)
	}
	if name == clusterName {
		gone := catalog.Tombstone{Backup: backupID(1), Reason: "too old", Time: began, By: "test"}
		err := c.Delete(t.Context(), gone)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// storeBackup stores a backup whose start is in its id, directly after the segment of that minute.
func storeBackup(t *testing.T, c *repository.Cluster, id catalog.ID, random io.Reader, size int) {
	t.Helper()
	plain := make([]byte, size)
	_, err := io.ReadFull(random, plain)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal.Bytes(plain, seal.Recipients{})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(plain)
	minute := uint64(id.Started().Sub(began) / time.Minute)
	m := catalog.Manifest{
		Started: id.Started(), Finished: id.Started().Add(time.Second), ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.7.3",
		Revision: 1000, RaftIndex: 10*minute + 5, RaftIndexMax: 10*minute + 5, RaftTerm: 2,
		Plain: catalog.Blob{Name: "snapshot.db", Size: int64(size), SHA256: hex.EncodeToString(sum[:])},
	}
	_, err = stored.CreateFrom(t.Context(), c, id, seal.Recipients{}.Seal(), bytes.NewReader(sealed),
		func() (catalog.Manifest, error) { return m, nil })
	if err != nil {
		t.Fatal(err)
	}
}

// storeLog stores a segment for each minute, and indexes of all but the last few.
func storeLog(t *testing.T, c *repository.Cluster, random io.Reader) {
	t.Helper()
	var all []catalog.Segment
	previous, lineage := "", strings.Repeat("a", 32)
	for n := range uint64(copiedSegments) {
		data := make([]byte, 20<<10)
		_, err := io.ReadFull(random, data)
		if err != nil {
			t.Fatal(err)
		}
		at := began.Add(time.Duration(n) * time.Minute)
		h := segment.Header{
			Cluster: c.Name(), Lineage: lineage, Seq: n + 1, Previous: previous, First: 10*n + 1, Last: 10*n + 10,
			End:    segment.End{Position: 10*n + 10, Term: 2, Digest: strings.Repeat("e", 64)},
			Marks:  []segment.Mark{{Position: 10*n + 10, Interval: segment.Interval{NotBefore: at, NotAfter: at.Add(time.Second)}}},
			Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d", ServerVersion: "3.7.3", Writer: "test", Written: at,
		}
		e, err := segment.Encode(h, []segment.Record{{Kind: segment.Request, Position: h.Last, Term: 2, Data: data}}, seal.Recipients{})
		if err == nil {
			err = c.Log().StoreSegment(t.Context(), e)
		}
		if err != nil {
			t.Fatal(err)
		}
		previous = e.Digest
		all = append(all, catalog.SegmentOf(e))
		if len(all) == 25 {
			err := c.Log().StoreIndex(t.Context(), lineage, all)
			if err != nil {
				t.Fatal(err)
			}
			all = nil
		}
	}
}

// digests returns the digests of the objects in a bucket, except that of the marker, which differs between
// repositories.
func digests(t *testing.T, b storage.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	for o, err := range b.List(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(o.Key, "/repository.json") {
			continue
		}
		r, _, err := b.Open(t.Context(), o.Key, storage.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		_, err = io.Copy(hash, r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		all[o.Key] = hex.EncodeToString(hash.Sum(nil))
	}
	return all
}

func (c copied) args(more ...string) []string {
	return append([]string{"copy", "--from", c.from, "--to", c.to}, more...)
}

// soFar fails unless every object at the target is the source's, and every listed backup is complete.
func (c copied) soFar(t *testing.T) (objects int) {
	t.Helper()
	target := bucket(t, c.to)
	got := digests(t, target)
	for key, digest := range got {
		if c.want[key] != digest {
			t.Errorf("%s is at the target, and not as at the source", key)
		}
		folder, isManifest := strings.CutSuffix(key, "manifest.json")
		if isManifest && got[folder+"snapshot.db.zst"] == "" {
			t.Errorf("%s is there before its data", key)
		}
	}
	for _, name := range []string{"other", clusterName} {
		cluster, err := repository.Open(target, name)
		if err != nil {
			t.Fatal(err)
		}
		catalog, err := cluster.Load(t.Context(), backups.LoadOptions{Proofs: true, Log: true})
		if err != nil || len(catalog.Damaged) > 0 {
			t.Fatalf("%v, damaged %+v", err, catalog.Damaged)
		}
		for _, l := range catalog.Lineages {
			if len(l.Faults) > 0 {
				t.Errorf("the log at the target has a fault: %v", l.Faults[0].Err)
			}
		}
	}
	return len(got)
}

// ended repeats the copy to its end, and once more.
func (c copied) ended(t *testing.T) {
	t.Helper()
	var d document.Copy
	run(t, c.args()...).Succeeded(t, &d)
	got := digests(t, bucket(t, c.to))
	if !maps.Equal(got, c.want) {
		t.Errorf("at the target are %d objects, not the %d of the source:\n%q\n%q", len(got), len(c.want),
			slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(c.want)))
	}
	run(t, c.args()...).Succeeded(t, &d)
	present := 0
	for _, cluster := range d.Clusters {
		present += cluster.Present
		if cluster.Objects > 0 || len(cluster.Faults) > 0 {
			t.Errorf("once more has copied %+v", cluster)
		}
	}
	if present != len(c.want) {
		t.Errorf("once more has found %d of %d objects", present, len(c.want))
	}
}

// kill interrupts the copy several times, each time a few objects further.
func (c copied) kill(t *testing.T, times int) {
	t.Helper()
	t.Logf("seed %d", seed(t))
	random := rand.New(rand.NewPCG(seed(t), 11))
	var reached []int
	for len(reached) < times {
		p := start(t, c.args()...)
		if p.Until(1+random.IntN(2*len(c.want)/times), "copy") {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond) // to die somewhere else each time
			p.Signal(t, syscall.SIGKILL)
		}
		o := p.Wait(t)
		if o.Code != -1 {
			t.Fatalf("it was not killed after %v objects: %s", reached, o)
		}
		reached = append(reached, c.soFar(t))
	}
	t.Logf("killed at %d of %d objects", reached, len(c.want))
	if reached[0] == reached[times-1] {
		t.Error("the copies did not get any further")
	}
}

func TestKilledCopies(t *testing.T) {
	if testing.Short() {
		return
	}
	c := newCopied(t, "file://"+filepath.Join(t.TempDir(), "to"))
	c.kill(t, 20)
	c.ended(t)
}

func TestKilledCopiesToS3(t *testing.T) {
	if testing.Short() {
		return
	}
	s := objectstores.S3(t)
	objectstores.Setenv(t, s.Env())
	c := newCopied(t, s.URL(s.Bucket(t), "copies"))
	c.kill(t, 8)
	c.ended(t)
	back := copied{from: c.to, to: "file://" + filepath.Join(t.TempDir(), "back"), want: c.want}
	back.ended(t)
}

// TestCopyNamesSkippedObjects checks that damaged objects of the source are reported and not copied, and that no object
// at the target is replaced.
func TestCopyNamesSkippedObjects(t *testing.T) {
	if testing.Short() {
		return
	}
	c := newCopied(t, "file://"+filepath.Join(t.TempDir(), "to"))
	damaged := backupsOf(clusterName) + string(backupID(2)) + "/snapshot.db.zst"
	other := backupsOf("other") + string(backupID(3)) + "/manifest.json"
	file := filepath.Join(strings.TrimPrefix(c.from, "file://"), damaged)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	err = os.WriteFile(file, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = bucket(t, c.to).Put(t.Context(), other, strings.NewReader("mine"), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, c.args()...)
	o.Failed(t, 3, damaged, other)
	var d document.Copy
	o.Decode(t, &d)
	var named []string
	for _, cluster := range d.Clusters {
		for _, f := range cluster.Faults {
			named = append(named, f.Key)
		}
	}
	slices.Sort(named)
	if !slices.Equal(named, []string{other, damaged}) {
		t.Errorf("faults of %q", named)
	}
	got := digests(t, bucket(t, c.to))
	sum := sha256.Sum256([]byte("mine"))
	if got[other] != hex.EncodeToString(sum[:]) {
		t.Errorf("%s was replaced", other)
	}
	for key, digest := range c.want {
		left := strings.HasPrefix(key, filepath.Dir(damaged)) || strings.HasPrefix(key, filepath.Dir(other))
		if !left && got[key] != digest {
			t.Errorf("%s was not copied", key)
		}
		if left && key != other && got[key] != "" {
			t.Errorf("%s was copied", key)
		}
	}
}

func TestCopySince(t *testing.T) {
	if testing.Short() {
		return
	}
	c := newCopied(t, "file://"+filepath.Join(t.TempDir(), "to"))
	since := began.Add(33 * time.Minute) // the backup of minute 30 is the base for this time
	var d document.Copy
	run(t, c.args("--cluster", clusterName, "--since", since.Format(time.RFC3339))...).Succeeded(t, &d)
	if len(d.Clusters) != 1 || d.Clusters[0].Backups != 3 || d.Clusters[0].Segments != copiedSegments-30 {
		t.Errorf("copied %+v", d.Clusters)
	}
	to := repo(strings.TrimPrefix(c.to, "file://"))
	list := to.list(t)
	if len(list.Backups) != 3 || list.Backups[2].ID != backupID(3) || len(list.Windows) != 1 || len(list.Gaps) != 0 {
		t.Errorf("%d backups, windows %+v, gaps %+v", len(list.Backups), list.Windows, list.Gaps)
	}
	w := list.Windows[0]
	if w.Base != backupID(3) || w.Segments != 30 || w.From.Time.After(since) {
		t.Errorf("window %+v", w)
	}
	for _, bad := range [][]string{
		{"copy"}, {"copy", "--from", c.from}, c.args("--since", "yesterday"), c.args("--since", "2999-01-01T00:00:00Z"), c.args("more"),
		{"copy", "--from", c.to + "/absent", "--to", c.to},
	} {
		run(t, bad...).Ended(t, 2)
	}
	run(t, c.args("--cluster", "nobody")...).Failed(t, 3, "nobody")
}
