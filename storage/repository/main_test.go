package repository_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// noon is when everything happens.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var errTest = errors.New("broken by the test")

// eachStore runs test on a repository in memory and on one in a directory.
func eachStore(t *testing.T, test func(t *testing.T, b storage.Bucket)) {
	t.Run("mem", func(t *testing.T) { test(t, mem.New()) })
	t.Run("file", func(t *testing.T) { test(t, openFile(t, t.TempDir())) })
}

func openFile(tb testing.TB, dir string) storage.Bucket {
	tb.Helper()
	b, err := file.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func openCluster(tb testing.TB, b storage.Bucket, name string) *repository.Cluster {
	tb.Helper()
	c, err := repository.Open(b, name)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// idAt names the backup that began n minutes past noon.
func idAt(n int) catalog.ID {
	return catalog.NewID(noon.Add(time.Duration(n)*time.Minute), int64(1000+n))
}

// folder is where a backup of cluster is kept, as it is documented.
func folder(cluster string, id catalog.ID) string { return cluster + "/backups/" + string(id) + "/" }

const plainName = "snapshot.db.zst" // the data of a backup that is not encrypted

// noise is n bytes that do not compress, the same ones each time.
func noise(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{2}).Read(p) // never fails
	return p
}

// content is a small snapshot.
var content = noise(100)

// manifestOf is what a backup of plain says of itself, before Create fills in the rest.
func manifestOf(plain []byte, started time.Time) catalog.Manifest {
	sum := sha256.Sum256(plain)
	return catalog.Manifest{
		Started: started, Finished: started.Add(2 * time.Second), DRVersion: "v0.1.0",
		ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.7.3", Revision: 1000,
		Plain: catalog.Blob{Name: "snapshot.db", Size: int64(len(plain)), SHA256: hex.EncodeToString(sum[:])},
	}
}

func sealed(tb testing.TB, plain []byte, to seal.Recipients) io.Reader {
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

func tryCreate(tb testing.TB, c *repository.Cluster, id catalog.ID, m catalog.Manifest) (catalog.Backup, error) {
	tb.Helper()
	return c.Create(tb.Context(), id, seal.Recipients{}.Seal(), 0, sealed(tb, content, seal.Recipients{}),
		func() (catalog.Manifest, error) { return m, nil })
}

// create stores a small backup that began when its name says.
func create(tb testing.TB, c *repository.Cluster, id catalog.ID) catalog.Backup {
	tb.Helper()
	b, err := tryCreate(tb, c, id, manifestOf(content, id.Started()))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// createSealed stores plain for to.
func createSealed(
	tb testing.TB, c *repository.Cluster, id catalog.ID, plain []byte, to seal.Recipients,
) catalog.Backup {
	tb.Helper()
	b, err := c.Create(tb.Context(), id, to.Seal(), 0, sealed(tb, plain, to),
		func() (catalog.Manifest, error) { return manifestOf(plain, id.Started()), nil })
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func load(tb testing.TB, c *repository.Cluster, o repository.LoadOptions) catalog.Catalog {
	tb.Helper()
	catalog, err := c.Load(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return catalog
}

func ids(cat catalog.Catalog) []catalog.ID {
	var all []catalog.ID
	for _, b := range cat.Backups {
		all = append(all, b.ID)
	}
	return all
}

func damagedIDs(cat catalog.Catalog) []catalog.ID {
	var all []catalog.ID
	for _, d := range cat.Damaged {
		all = append(all, d.ID)
	}
	return all
}

// wantIDs fails unless the catalog has just these, whole and damaged ones, in this order.
func wantIDs(tb testing.TB, catalog catalog.Catalog, whole, damaged []catalog.ID) {
	tb.Helper()
	if got := ids(catalog); !slices.Equal(got, whole) {
		tb.Errorf("backups %q, want %q", got, whole)
	}
	if got := damagedIDs(catalog); !slices.Equal(got, damaged) {
		tb.Errorf("damaged %q, want %q", got, damaged)
	}
}

// wantDamaged fails unless err is one of damage that names key, and names it once.
func wantDamaged(tb testing.TB, what string, err error, key string) {
	tb.Helper()
	wantError(tb, what, err, catalog.ErrDamaged)
	if err != nil && strings.Count(err.Error(), key) != 1 {
		tb.Errorf("%s: %v: want %s named once", what, err, key)
	}
}

func wantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want one that is %v", what, err, want)
	}
}

func put(tb testing.TB, b storage.Bucket, key string, p []byte) {
	tb.Helper()
	if _, err := b.Put(context.WithoutCancel(tb.Context()), key, bytes.NewReader(p), storage.PutOptions{}); err != nil {
		tb.Fatal(err)
	}
}

func get(tb testing.TB, b storage.Bucket, key string) []byte {
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

func remove(tb testing.TB, b storage.Bucket, key string) {
	tb.Helper()
	if err := b.Delete(tb.Context(), key, storage.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// change rewrites what is under key.
func change(tb testing.TB, b storage.Bucket, key string, how func([]byte) []byte) {
	tb.Helper()
	put(tb, b, key, how(slices.Clone(get(tb, b, key))))
}

func flip(at int, mask byte) func([]byte) []byte {
	return func(p []byte) []byte {
		p[at] ^= mask
		return p
	}
}

func keys(tb testing.TB, b storage.Bucket) []string {
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
func wantNothing(tb testing.TB, what string, b storage.Bucket) {
	tb.Helper()
	left := slices.DeleteFunc(keys(tb, b), func(key string) bool { return strings.HasPrefix(key, "c/leases/") })
	if len(left) > 0 {
		tb.Errorf("%s has left %q", what, left)
	}
	if left, err := openCluster(tb, b, "c").Leftovers(tb.Context()); len(left) > 0 || err != nil {
		tb.Errorf("%s has left %+v, %v", what, left, err)
	}
}

// fetch reads a backup to its end; the error is nil for io.EOF.
func fetch(tb testing.TB, c *repository.Cluster, b catalog.Backup, keys seal.Keys) ([]byte, error) {
	tb.Helper()
	s, err := c.Fetch(tb.Context(), b, keys)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(s)
	return p, errors.Join(err, s.Close())
}

func wantContent(tb testing.TB, c *repository.Cluster, b catalog.Backup) {
	tb.Helper()
	if p, err := fetch(tb, c, b, seal.Keys{}); err != nil || !bytes.Equal(p, content) {
		tb.Errorf("backup %s: %d bytes, %v", b.ID, len(p), err)
	}
}

// pair is a new key and its recipient.
func pair(tb testing.TB) (seal.Keys, seal.Recipients) {
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
func framed(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return []byte(body + `  "sha256": "` + hex.EncodeToString(sum[:]) + "\",\n  \"signature\": \"\"\n}\n")
}

// body is the part of a document that its digest covers.
func body(document []byte) string {
	return string(document[:bytes.LastIndex(document, []byte("\n  \"sha256\": \""))+1])
}

// rewritten is document with a piece of its body replaced, and a digest that fits.
func rewritten(tb testing.TB, document []byte, old, new string) []byte {
	tb.Helper()
	before := body(document)
	after := strings.Replace(before, old, new, 1)
	if before == after {
		tb.Fatalf("there is no %q in %s", old, before)
	}
	return framed(after)
}
