// Package stored has the fixtures of the tests of the packages below storage: buckets, backups, segments and the checks on them.
package stored

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// noon is when everything happens.
var Noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var ErrTest = errors.New("broken by the test")

// eachStore runs test on a repository in memory and on one in a directory.
func EachStore(t *testing.T, test func(t *testing.T, b storage.Bucket)) {
	t.Run("mem", func(t *testing.T) { test(t, mem.New()) })
	t.Run("file", func(t *testing.T) { test(t, OpenFile(t, t.TempDir())) })
}

func OpenFile(tb testing.TB, dir string) storage.Bucket {
	tb.Helper()
	b, err := file.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func OpenCluster(tb testing.TB, b storage.Bucket, name string) *repository.Cluster {
	tb.Helper()
	c, err := repository.Open(b, name)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// idAt names the backup that began n minutes past noon.
func IdAt(n int) catalog.ID {
	return catalog.NewID(Noon.Add(time.Duration(n)*time.Minute), int64(1000+n))
}

// folder is where a backup of cluster is kept, as it is documented.
func Folder(cluster string, id catalog.ID) string { return cluster + "/backups/" + string(id) + "/" }

const PlainName = "snapshot.db.zst" // the data of a backup that is not encrypted

// noise is n bytes that do not compress, the same ones each time.
func Noise(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{2}).Read(p) // never fails
	return p
}

// content is a small snapshot.
var Content = Noise(100)

// manifestOf is what a backup of plain says of itself, before Create fills in the rest.
func ManifestOf(plain []byte, started time.Time) catalog.Manifest {
	sum := sha256.Sum256(plain)
	return catalog.Manifest{
		Started: started, Finished: started.Add(2 * time.Second), DRVersion: "v0.1.0",
		ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.7.3", Revision: 1000,
		Plain: catalog.Blob{Name: "snapshot.db", Size: int64(len(plain)), SHA256: hex.EncodeToString(sum[:])},
	}
}

func Sealed(tb testing.TB, plain []byte, to seal.Recipients) io.Reader {
	tb.Helper()
	stream, err := seal.New(bytes.NewReader(plain), to)
	if err != nil {
		tb.Fatal(err)
	}
	defer stream.Close()
	p, err := io.ReadAll(stream)
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.NewReader(p)
}

func TryCreate(tb testing.TB, c *repository.Cluster, id catalog.ID, m catalog.Manifest) (catalog.Backup, error) {
	tb.Helper()
	return c.Create(tb.Context(), id, seal.Recipients{}.Seal(), 0, Sealed(tb, Content, seal.Recipients{}),
		func() (catalog.Manifest, error) { return m, nil })
}

// create stores a small backup that began when its name says.
func Create(tb testing.TB, c *repository.Cluster, id catalog.ID) catalog.Backup {
	tb.Helper()
	b, err := TryCreate(tb, c, id, ManifestOf(Content, id.Started()))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// createSealed stores plain for to.
func CreateSealed(
	tb testing.TB, c *repository.Cluster, id catalog.ID, plain []byte, to seal.Recipients,
) catalog.Backup {
	tb.Helper()
	b, err := c.Create(tb.Context(), id, to.Seal(), 0, Sealed(tb, plain, to),
		func() (catalog.Manifest, error) { return ManifestOf(plain, id.Started()), nil })
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func Load(tb testing.TB, c *repository.Cluster, o backups.LoadOptions) catalog.Catalog {
	tb.Helper()
	catalog, err := c.Load(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return catalog
}

func Ids(cat catalog.Catalog) []catalog.ID {
	var all []catalog.ID
	for _, b := range cat.Backups {
		all = append(all, b.ID)
	}
	return all
}

func DamagedIDs(cat catalog.Catalog) []catalog.ID {
	var all []catalog.ID
	for _, d := range cat.Damaged {
		all = append(all, d.ID)
	}
	return all
}

// wantIDs fails unless the catalog has just these, whole and damaged ones, in this order.
func WantIDs(tb testing.TB, catalog catalog.Catalog, whole, damaged []catalog.ID) {
	tb.Helper()
	if got := Ids(catalog); !slices.Equal(got, whole) {
		tb.Errorf("backups %q, want %q", got, whole)
	}
	if got := DamagedIDs(catalog); !slices.Equal(got, damaged) {
		tb.Errorf("damaged %q, want %q", got, damaged)
	}
}

// wantDamaged fails unless err is one of damage that names key, and names it once.
func WantDamaged(tb testing.TB, what string, err error, key string) {
	tb.Helper()
	WantError(tb, what, err, catalog.ErrDamaged)
	if err != nil && strings.Count(err.Error(), key) != 1 {
		tb.Errorf("%s: %v: want %s named once", what, err, key)
	}
}

func WantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want one that is %v", what, err, want)
	}
}

func Put(tb testing.TB, b storage.Bucket, key string, p []byte) {
	tb.Helper()
	if _, err := b.Put(context.WithoutCancel(tb.Context()), key, bytes.NewReader(p), storage.PutOptions{}); err != nil {
		tb.Fatal(err)
	}
}

func Get(tb testing.TB, b storage.Bucket, key string) []byte {
	tb.Helper()
	r, _, err := b.Open(tb.Context(), key, storage.OpenOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func Remove(tb testing.TB, b storage.Bucket, key string) {
	tb.Helper()
	if err := b.Delete(tb.Context(), key, storage.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// change rewrites what is under key.
func Change(tb testing.TB, b storage.Bucket, key string, how func([]byte) []byte) {
	tb.Helper()
	Put(tb, b, key, how(slices.Clone(Get(tb, b, key))))
}

func Flip(at int, mask byte) func([]byte) []byte {
	return func(p []byte) []byte {
		p[at] ^= mask
		return p
	}
}

func Keys(tb testing.TB, b storage.Bucket) []string {
	tb.Helper()
	var all []string
	for o, err := range b.List(tb.Context(), storage.ListOptions{}) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, o.Key)
	}
	return all
}

// wantNothing fails if there is anything in b, shown or not, but leases.
func WantNothing(tb testing.TB, what string, b storage.Bucket) {
	tb.Helper()
	left := slices.DeleteFunc(Keys(tb, b), func(key string) bool { return strings.HasPrefix(key, "c/leases/") })
	if len(left) > 0 {
		tb.Errorf("%s has left %q", what, left)
	}
	if left, err := OpenCluster(tb, b, "c").Leftovers(tb.Context()); len(left) > 0 || err != nil {
		tb.Errorf("%s has left %+v, %v", what, left, err)
	}
}

// fetch reads a backup to its end; the error is nil for io.EOF.
func Fetch(tb testing.TB, c *repository.Cluster, b catalog.Backup, keys seal.Keys) ([]byte, error) {
	tb.Helper()
	s, err := c.Fetch(tb.Context(), b, keys)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(s)
	return p, errors.Join(err, s.Close())
}

func WantContent(tb testing.TB, c *repository.Cluster, b catalog.Backup) {
	tb.Helper()
	if p, err := Fetch(tb, c, b, seal.Keys{}); err != nil || !bytes.Equal(p, Content) {
		tb.Errorf("backup %s: %d bytes, %v", b.ID, len(p), err)
	}
}

// pair is a new key and its recipient.
func Pair(tb testing.TB) (seal.Keys, seal.Recipients) {
	tb.Helper()
	identity, recipient, err := seal.Generate()
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := seal.ParseKeys(strings.NewReader(identity))
	if err != nil {
		tb.Fatal(err)
	}
	to, err := seal.ParseRecipients(strings.NewReader(recipient))
	if err != nil {
		tb.Fatal(err)
	}
	return keys, to
}

// framed is a document with this body and a digest that fits it: what somebody writes who knows how.
func Framed(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return []byte(body + `  "sha256": "` + hex.EncodeToString(sum[:]) + "\",\n  \"signature\": \"\"\n}\n")
}

// body is the part of a document that its digest covers.
func Body(document []byte) string {
	return string(document[:bytes.LastIndex(document, []byte("\n  \"sha256\": \""))+1])
}

// rewritten is document with a piece of its body replaced, and a digest that fits.
func Rewritten(tb testing.TB, document []byte, old, new string) []byte {
	tb.Helper()
	before := Body(document)
	after := strings.Replace(before, old, new, 1)
	if before == after {
		tb.Fatalf("there is no %q in %s", old, before)
	}
	return Framed(after)
}

var Update = flag.Bool("update", false, "rewrite the golden files")

func WantGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: backups that exist are written so; -update only for a new format:\n%s", path, diff)
	}
}

// fuzzed is what may be said of any bytes: read as they are, and as a document with the right digest, they are damaged
// or come out equal when they are written again.
func Fuzzed[T any](t *testing.T, data []byte, decode func([]byte) (T, error), encode func(T) ([]byte, error)) {
	for _, document := range [][]byte{data, Framed(string(data))} {
		v, err := decode(document)
		if err != nil {
			if !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("%v is no damage", err)
			}
			continue
		}
		again, err := encode(v)
		if err != nil {
			if len(document) < 1<<16 { // a very long one may become too long
				t.Errorf("what was read cannot be written: %v", err)
			}
			continue
		}
		w, err := decode(again)
		if diff := cmp.Diff(v, w, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// proofOf is what a verify found n hours past noon.
func ProofOf(id catalog.ID, l catalog.Level, v catalog.Verdict, n int) catalog.Proof {
	return catalog.Proof{
		Format: catalog.Proofs.Format, Backup: id, Level: l, Verdict: v, Finding: "as expected",
		Time: Noon.Add(time.Duration(n) * time.Hour), Seconds: 0.5, By: "host v0.1.0",
	}
}

const Grace = 24 * time.Hour

// piece writes what a killed Put leaves in a directory: see the package file.
func Piece(t *testing.T, dir, folder, name string, age time.Duration) string {
	t.Helper()
	key := folder + ".dr-tmp-0123456789abcdef-" + name
	path := filepath.Join(dir, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, Content, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-age)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	return key
}

func Survey(t *testing.T, c *repository.Cluster, o repository.SurveyOptions) repository.Survey {
	t.Helper()
	s, err := c.Survey(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// live returns how many bytes of the heap are in use after a collection.
func Live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// word is what is said of a cluster n seconds past noon.
func Suspension(suspended bool, n int) suspension.Suspension {
	return suspension.Suspension{Suspended: suspended, Time: Noon.Add(time.Duration(n) * time.Second), By: "test", Reason: "why not"}
}

func Suspend(tb testing.TB, c *repository.Cluster, s suspension.Suspension) suspension.Suspension {
	tb.Helper()
	said, err := c.Services().Write(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return said
}

func FullSuspension() suspension.Suspension {
	return suspension.Suspension{
		Format: suspension.Kind.Format, Cluster: "c", Suspended: true, Time: Noon.Add(1), By: "host, dr v0.1.0", Reason: "the disks are replaced",
	}
}
