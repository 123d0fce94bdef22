// Package stored has fixtures for tests of the packages below storage: buckets, clusters with backups and logs, ways to
// damage them, and checks of the results. A function that gets a testing.TB fails the test on an error that it does not
// return.
package stored

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// Noon is the time of the fixtures.
var Noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// ErrTest is the error that tests inject into stores and streams.
var ErrTest = errors.New("broken by the test")

// EachStore runs test with an empty store in memory and with one in a directory.
func EachStore(t *testing.T, test func(t *testing.T, b storage.Bucket)) {
	t.Run("mem", func(t *testing.T) { test(t, mem.New()) })
	t.Run("file", func(t *testing.T) { test(t, OpenFile(t, t.TempDir())) })
}

// OpenFile opens the store in a directory.
func OpenFile(tb testing.TB, dir string) storage.Bucket {
	tb.Helper()
	b, err := file.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// OpenCluster opens the cluster called name, without keys and locks.
func OpenCluster(tb testing.TB, b storage.Bucket, name string) *repository.Cluster {
	tb.Helper()
	c, err := repository.Open(b, name)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// IDAt returns the id of a backup that began n minutes after Noon, at revision 1000+n.
func IDAt(n int) catalog.ID {
	return catalog.NewID(Noon.Add(time.Duration(n)*time.Minute), int64(1000+n))
}

// Folder returns the documented prefix of the keys of a backup's objects.
func Folder(cluster string, id catalog.ID) string { return cluster + "/backups/" + string(id) + "/" }

// PlainName is the name of the data of a backup that is not encrypted.
const PlainName = "snapshot.db.zst"

// Noise returns n bytes that do not compress, the same ones each time.
func Noise(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{2}).Read(p) // never fails
	return p
}

// Content is a small snapshot, as the other functions store it.
var Content = Noise(100)

// ManifestOf returns the manifest of a backup of plain, without the fields that Upload.Commit fills in.
func ManifestOf(plain []byte, started time.Time) catalog.Manifest {
	sum := sha256.Sum256(plain)
	return catalog.Manifest{
		Started: started, Finished: started.Add(2 * time.Second), DRVersion: "v0.1.0",
		ClusterID: "cdf818194e3a8c32", EtcdVersion: "3.7.3", Revision: 1000,
		Plain: catalog.Blob{Name: "snapshot.db", Size: int64(len(plain)), SHA256: hex.EncodeToString(sum[:])},
	}
}

// Sealed returns plain, compressed and encrypted to the recipients.
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

// TryCreate stores Content with the manifest m, and returns the error of CreateFrom.
func TryCreate(tb testing.TB, c *repository.Cluster, id catalog.ID, m catalog.Manifest) (catalog.Backup, error) {
	tb.Helper()
	return CreateFrom(tb.Context(), c, id, seal.Recipients{}.Seal(), Sealed(tb, Content, seal.Recipients{}),
		func() (catalog.Manifest, error) { return m, nil })
}

// Create stores a backup of Content that began at the time in id.
func Create(tb testing.TB, c *repository.Cluster, id catalog.ID) catalog.Backup {
	tb.Helper()
	b, err := TryCreate(tb, c, id, ManifestOf(Content, id.Started()))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// CreateSealed stores a backup of plain, encrypted to the recipients.
func CreateSealed(
	tb testing.TB, c *repository.Cluster, id catalog.ID, plain []byte, to seal.Recipients,
) catalog.Backup {
	tb.Helper()
	b, err := CreateFrom(tb.Context(), c, id, to.Seal(), Sealed(tb, plain, to),
		func() (catalog.Manifest, error) { return ManifestOf(plain, id.Started()), nil })
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Load returns the catalog of c.
func Load(tb testing.TB, c *repository.Cluster, o backups.LoadOptions) catalog.Catalog {
	tb.Helper()
	catalog, err := c.Load(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return catalog
}

// IDs returns the ids of the usable backups, in the order of the catalog.
func IDs(cat catalog.Catalog) []catalog.ID {
	var all []catalog.ID
	for _, b := range cat.Backups {
		all = append(all, b.ID)
	}
	return all
}

// DamagedIDs returns the ids of the damaged backups, in the order of the catalog.
func DamagedIDs(cat catalog.Catalog) []catalog.ID {
	var all []catalog.ID
	for _, d := range cat.Damaged {
		all = append(all, d.ID)
	}
	return all
}

// WantIDs fails the test unless the catalog has exactly these usable and damaged backups, in this order.
func WantIDs(tb testing.TB, catalog catalog.Catalog, whole, damaged []catalog.ID) {
	tb.Helper()
	got := IDs(catalog)
	if !slices.Equal(got, whole) {
		tb.Errorf("backups %q, want %q", got, whole)
	}
	got = DamagedIDs(catalog)
	if !slices.Equal(got, damaged) {
		tb.Errorf("damaged %q, want %q", got, damaged)
	}
}

// WantDamaged fails the test unless err matches catalog.ErrDamaged and names key exactly once.
func WantDamaged(tb testing.TB, what string, err error, key string) {
	tb.Helper()
	WantError(tb, what, err, catalog.ErrDamaged)
	if err != nil && strings.Count(err.Error(), key) != 1 {
		tb.Errorf("%s: %v: want %s named once", what, err, key)
	}
}

// WantError fails the test unless err matches want.
func WantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want one that is %v", what, err, want)
	}
}

// Put stores an object, and replaces an existing one.
func Put(tb testing.TB, b storage.Bucket, key string, p []byte) {
	tb.Helper()
	_, err := b.Put(context.WithoutCancel(tb.Context()), key, bytes.NewReader(p), storage.PutOptions{})
	if err != nil {
		tb.Fatal(err)
	}
}

// Get returns the content of an object.
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

// Remove deletes an object.
func Remove(tb testing.TB, b storage.Bucket, key string) {
	tb.Helper()
	err := b.Delete(tb.Context(), key, storage.DeleteOptions{})
	if err != nil {
		tb.Fatal(err)
	}
}

// Change replaces the content of the object under key with the result of how.
func Change(tb testing.TB, b storage.Bucket, key string, how func([]byte) []byte) {
	tb.Helper()
	Put(tb, b, key, how(slices.Clone(Get(tb, b, key))))
}

// Masks returns the bits to flip in each byte of a test that flips all: one of them in short tests.
func Masks() []byte {
	if testing.Short() {
		return []byte{0x20}
	}
	return []byte{0x01, 0x20, 0x80}
}

// Flip returns a function that inverts the bits of mask in the byte at an offset.
func Flip(at int, mask byte) func([]byte) []byte {
	return func(p []byte) []byte {
		p[at] ^= mask
		return p
	}
}

// Keys returns the keys of all objects in b.
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

// WantNothing fails the test if b contains any object, other than leases of the cluster named "c", or that cluster has leftovers.
func WantNothing(tb testing.TB, what string, b storage.Bucket) {
	tb.Helper()
	left := slices.DeleteFunc(Keys(tb, b), func(key string) bool { return strings.HasPrefix(key, "c/leases/") })
	if len(left) > 0 {
		tb.Errorf("%s has left %q", what, left)
	}
	leftovers, err := OpenCluster(tb, b, "c").Leftovers(tb.Context())
	if len(leftovers) > 0 || err != nil {
		tb.Errorf("%s has left %+v, %v", what, leftovers, err)
	}
}

// Fetch returns the plain content of a backup, and the error of opening, reading or closing it.
func Fetch(tb testing.TB, c *repository.Cluster, b catalog.Backup, keys seal.Keys) ([]byte, error) {
	tb.Helper()
	s, err := c.Fetch(tb.Context(), b, keys)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(s)
	return p, errors.Join(err, s.Close())
}

// WantContent fails the test unless the backup contains Content, not encrypted.
func WantContent(tb testing.TB, c *repository.Cluster, b catalog.Backup) {
	tb.Helper()
	p, err := Fetch(tb, c, b, seal.Keys{})
	if err != nil || !bytes.Equal(p, Content) {
		tb.Errorf("backup %s: %d bytes, %v", b.ID, len(p), err)
	}
}

// KeyPair is a private key with its recipient, as the texts that operators keep and as values.
type KeyPair struct {
	Identity, Recipient string
	Keys                seal.Keys
	To                  seal.Recipients
}

// Pair returns a new private key and its recipient.
func Pair(tb testing.TB) (seal.Keys, seal.Recipients) {
	tb.Helper()
	p := NewKeyPair(tb)
	return p.Keys, p.To
}

// NewKeyPair returns a new private key and its recipient.
func NewKeyPair(tb testing.TB) KeyPair {
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
	return KeyPair{identity, recipient, keys, to}
}

// Framed returns a document with this body, its correct digest and no signature, as an attacker can write it.
func Framed(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return []byte(body + `  "sha256": "` + hex.EncodeToString(sum[:]) + "\",\n  \"signature\": \"\"\n}\n")
}

// Body returns the part of a document that its digest covers.
func Body(document []byte) string {
	return string(document[:bytes.LastIndex(document, []byte("\n  \"sha256\": \""))+1])
}

// Rewritten returns document with the first old in its body replaced by new, the correct digest and no signature.
func Rewritten(tb testing.TB, document []byte, old, new string) []byte {
	tb.Helper()
	before := Body(document)
	after := strings.Replace(before, old, new, 1)
	if before == after {
		tb.Fatalf("there is no %q in %s", old, before)
	}
	return Framed(after)
}

// Fuzzed decodes data as it is, and as the body of a document with the correct digest. It fails the test unless the error
// matches catalog.ErrDamaged, or the value is equal after it was encoded and decoded again.
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
			if len(document) < 1<<16 { // a very long one can exceed the limit when it is encoded
				t.Errorf("what was read cannot be written: %v", err)
			}
			continue
		}
		w, err := decode(again)
		diff := cmp.Diff(v, w, cmpopts.EquateEmpty())
		if err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// ProofOf returns the proof of a verify n hours after Noon.
func ProofOf(id catalog.ID, l catalog.Level, v catalog.Verdict, n int) catalog.Proof {
	return catalog.Proof{
		Format: catalog.Proofs.Format, Backup: id, Level: l, Verdict: v, Finding: "as expected",
		Time: Noon.Add(time.Duration(n) * time.Hour), Seconds: 0.5, By: "host v0.1.0",
	}
}

// Grace is the time for which tests keep leftovers before a sweep.
const Grace = 24 * time.Hour

// Piece writes the file that a killed Put of name leaves in the store in dir, last changed that long ago. It returns the
// file's key. See package file.
func Piece(t *testing.T, dir, folder, name string, age time.Duration) string {
	t.Helper()
	key := folder + ".dr-tmp-0123456789abcdef-" + name
	path := filepath.Join(dir, key)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(path, Content, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-age)
	err = os.Chtimes(path, then, then)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Survey returns the survey of c.
func Survey(t *testing.T, c *repository.Cluster, o repository.SurveyOptions) repository.Survey {
	t.Helper()
	s, err := c.Survey(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Live returns the bytes of the heap that are in use after a collection.
func Live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Suspension returns a suspension, or the end of one, that was decided n seconds after Noon.
func Suspension(suspended bool, n int) suspension.Suspension {
	return suspension.Suspension{Suspended: suspended, Time: Noon.Add(time.Duration(n) * time.Second), By: "test", Reason: "why not"}
}

// Suspend writes s and returns it as it is stored.
func Suspend(tb testing.TB, c *repository.Cluster, s suspension.Suspension) suspension.Suspension {
	tb.Helper()
	said, err := c.Services().Write(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return said
}

// FullSuspension returns a suspension for tests of its encoding.
func FullSuspension() suspension.Suspension {
	return suspension.Suspension{
		Format: suspension.Kind.Format, Cluster: "c", Suspended: true, Time: Noon.Add(1), By: "host, dr v0.1.0", Reason: "the disks are replaced",
	}
}
