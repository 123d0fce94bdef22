package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestEveryByteOfTheManifestCounts checks that every changed byte in a manifest makes the backup a damaged one, and
// never another one.
func TestEveryByteOfTheManifestCounts(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	manifest, object := b.read(t, b.manifestKey), b.read(t, b.objectKey)
	random := rand.New(rand.NewPCG(seed(t), 1))
	for at := range manifest {
		c := inMemory(t, map[string][]byte{b.manifestKey: flipped(manifest, at, random), b.objectKey: object})
		catalog, err := c.Load(t.Context(), backups.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(catalog.Backups) != 0 || len(catalog.Damaged) != 1 {
			t.Errorf("byte %d of %d: %d backups are listed, %d as damaged", at, len(manifest), len(catalog.Backups), len(catalog.Damaged))
			continue
		}
		foundDamage(t, "manifest", at, catalog.Damaged[0].Err, b.manifestKey)
	}
}

// TestBytesOfTheObjectCount checks that a changed byte in the stored object is found when the object is read.
func TestBytesOfTheObjectCount(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	random := rand.New(rand.NewPCG(seed(t), 2))
	keys := b.key.keys(t)
	object := b.read(t, b.objectKey)
	for _, at := range positions(random, len(object), 300) {
		changeObject(t, b, keys, at, flipped(object, at, random))
	}
}

// headerSize is less than the size of the seal's header: lines of text with the recipients and a checksum.
const headerSize = 180

// TestLettersOfTheSealsHeaderCount replaces a letter in the header with another one, which leaves a valid header for
// another key.
func TestLettersOfTheSealsHeaderCount(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	keys := b.key.keys(t)
	object := b.read(t, b.objectKey)
	for at := range headerSize {
		changeObject(t, b, keys, at, otherLetter(object, at))
	}
}

func otherLetter(data []byte, at int) []byte {
	changed := bytes.Clone(data)
	changed[at] = 'A'
	if data[at] == 'A' {
		changed[at] = 'Q'
	}
	return changed
}

func TestSoakEveryByteOfTheObjectCounts(t *testing.T) {
	if !soak.On() {
		return
	}
	b := needBase(t)
	random := rand.New(rand.NewPCG(seed(t), 3))
	keys := b.key.keys(t)
	object := b.read(t, b.objectKey)
	end, done := time.Now().Add(soakTime(t)), 0
	for _, at := range random.Perm(len(object)) {
		if time.Now().After(end) {
			break
		}
		changeObject(t, b, keys, at, flipped(object, at, random))
		done++
	}
	t.Logf("seed %d: %d of %d positions", seed(t), done, len(object))
}

// positions returns the first and last 64 of size, and others up to n.
func positions(random *rand.Rand, size, n int) []int {
	var all []int
	for i := range 64 {
		all = append(all, i, size-1-i)
	}
	for len(all) < n {
		all = append(all, 64+random.IntN(size-128))
	}
	return all
}

// changeObject fails the test unless an object with a change at one place is found damaged, sealed and unsealed.
func changeObject(t *testing.T, b *base, keys seal.Keys, at int, changed []byte) {
	t.Helper()
	c := inMemory(t, map[string][]byte{b.manifestKey: b.read(t, b.manifestKey), b.objectKey: changed})
	catalog, err := c.Load(t.Context(), backups.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	backup, err := catalog.Latest()
	if err != nil {
		t.Fatal(err)
	}
	foundDamage(t, "object", at, readAll(t.Context(), c, backup, keys), b.objectKey)
	sealed, err := c.FetchSealed(t.Context(), backup)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	_, err = io.Copy(io.Discard, sealed)
	foundDamage(t, "sealed object", at, err, b.objectKey)
}

func readAll(ctx context.Context, c *repository.Cluster, b catalog.Backup, keys seal.Keys) error {
	snapshot, err := c.Fetch(ctx, b, keys)
	if err != nil {
		return err
	}
	defer snapshot.Close()
	_, err = io.Copy(io.Discard, snapshot)
	return err
}

// foundDamage fails the test unless err reports the object under key as damaged. A changed byte in the seal's header
// must not look like a wrong key: the operator would search for another key, and verify would not mark the backup.
func foundDamage(t *testing.T, what string, at int, err error, key string) {
	t.Helper()
	if !errors.Is(err, catalog.ErrDamaged) || errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("byte %d of the %s: got %v, want damage", at, what, err)
		return
	}
	if !strings.Contains(err.Error(), key) {
		t.Errorf("byte %d of the %s: %q does not name %s", at, what, err, key)
	}
}

// flipped returns data with another byte at one place.
func flipped(data []byte, at int, random *rand.Rand) []byte {
	changed := bytes.Clone(data)
	changed[at] ^= byte(1 + random.IntN(255))
	return changed
}

func inMemory(t *testing.T, objects map[string][]byte) *repository.Cluster {
	t.Helper()
	bucket := mem.New()
	for key, content := range objects {
		_, err := bucket.Put(t.Context(), key, bytes.NewReader(content), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := repository.Open(bucket, clusterName)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDamageInOneLine checks that the binary reports damage in one line, with exit code 3, and leaves nothing.
func TestDamageInOneLine(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	random := rand.New(rand.NewPCG(seed(t), 4))
	for _, at := range spread(random, len(b.read(t, b.manifestKey)), 16) {
		r := b.with(t, t.TempDir(), b.manifestKey, flipped(b.read(t, b.manifestKey), at, random))
		run(t, r.flags("list")...).Failed(t, 3, b.manifestKey)
		verifyAndRestore(t, b, r, 3, b.manifestKey)
	}
	object := b.read(t, b.objectKey)
	for _, at := range spread(random, len(object), 25) {
		damagedObject(t, b, flipped(object, at, random))
	}
	for _, at := range []int{35, 75, 95} {
		damagedObject(t, b, otherLetter(object, at))
	}
}

// damagedObject fails the test unless the binary finds an object damaged, and reports it from then on.
func damagedObject(t *testing.T, b *base, object []byte) {
	t.Helper()
	r := b.with(t, t.TempDir(), b.objectKey, object)
	verifyAndRestore(t, b, r, 3, b.objectKey, "damaged")
	failedProof(t, r, b.backup.ID)
}

// failedProof fails the test unless the newest proof of a backup has failed.
func failedProof(t *testing.T, r repo, id catalog.ID) {
	t.Helper()
	for _, b := range r.list(t).Backups {
		if b.ID != id {
			continue
		}
		if len(b.Proofs) == 0 || b.Proofs[len(b.Proofs)-1].Verdict != catalog.Failed {
			t.Errorf("no verify of %s has failed; its proofs are %+v", id, b.Proofs)
		}
		return
	}
	t.Errorf("%s is not listed", id)
}

// spread returns n positions, including the first and the last.
func spread(random *rand.Rand, size, n int) []int {
	all := []int{0, size - 1}
	for len(all) < n {
		all = append(all, random.IntN(size))
	}
	return all
}

// verifyAndRestore fails the test unless both verbs end with that code and a line with these words, and leave nothing.
func verifyAndRestore(t *testing.T, b *base, r repo, code int, words ...string) {
	t.Helper()
	identity := []string{"--identity", b.key.file}
	run(t, r.flags("verify", append(identity, "--level", "hashed")...)...).Failed(t, code, words...)
	badRestore(t, r, identity, code, words...)
}

func badRestore(t *testing.T, r repo, flags []string, code int, words ...string) {
	t.Helper()
	parent := t.TempDir()
	flags = append(flags, "--old-is-dead", "--output-dir", filepath.Join(parent, "restored"))
	run(t, r.flags("restore", flags...)...).Failed(t, code, words...)
	nothingIn(t, parent)
}

func TestTruncatedObject(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	object := b.read(t, b.objectKey)
	for _, size := range []int{0, 1, len(object) / 2, len(object) - 1} {
		r := b.with(t, t.TempDir(), b.objectKey, object[:size])
		run(t, r.flags("list")...).Failed(t, 3, b.objectKey, fmt.Sprint(len(object)))
		verifyAndRestore(t, b, r, 3, b.objectKey)
	}
	longer := b.with(t, t.TempDir(), b.objectKey, append(bytes.Clone(object), 0))
	run(t, longer.flags("list")...).Failed(t, 3, b.objectKey)
	verifyAndRestore(t, b, longer, 3, b.objectKey)
}

func TestManifestWithoutItsObject(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	r := b.with(t, t.TempDir(), b.objectKey, nil)
	run(t, r.flags("list")...).Failed(t, 3, b.objectKey, "missing")
	verifyAndRestore(t, b, r, 3, b.objectKey, "missing")
}

func TestObjectWithoutItsManifest(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	r := b.with(t, t.TempDir(), b.manifestKey, nil)
	run(t, r.flags("list")...).Failed(t, 3, clusterName)
	verifyAndRestore(t, b, r, 3, clusterName)
	id := string(b.backup.ID)
	run(t, r.flags("verify", id)...).Failed(t, 3, id)
	badRestore(t, r, []string{id, "--identity", b.key.file}, 3, id)
	left := r.leftovers(t)
	if len(left) != 1 || left[0] != b.objectKey {
		t.Errorf("the leftovers are %q, want %s", left, b.objectKey)
	}
}

// TestDamageOfTheNewestIsReported checks that dr does not silently use an older backup if the newest is damaged.
func TestDamageOfTheNewestIsReported(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	r := b.with(t, t.TempDir(), "", nil)
	newer := catalog.NewID(b.backup.Started.Add(time.Hour), b.backup.Revision)
	folder := filepath.Join(string(r), clusterName, "backups", string(newer))
	err := os.MkdirAll(folder, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(filepath.Join(folder, "manifest.json"), []byte("{}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	verifyAndRestore(t, b, r, 3, string(newer), string(b.backup.ID))
	run(t, r.flags("verify", string(b.backup.ID), "--level", "hashed", "--identity", b.key.file)...).Succeeded(t, nil)
}

func TestWrongKeyAndNoKey(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	for name, flags := range map[string][]string{"wrong key": {"--identity", b.other.file}, "no key": nil} {
		r := b.with(t, t.TempDir(), "", nil)
		badRestore(t, r, flags, 3, b.objectKey, b.key.recipient[:16])
		scratch := t.TempDir()
		run(t, r.flags("verify", append(flags, "--scratch-dir", scratch)...)...).Failed(t, 3, b.objectKey, b.key.recipient[:16])
		nothingIn(t, scratch)
		// This is no finding about the backup.
		b := r.list(t).Backups[0]
		if len(b.Proofs) != 1 || b.Proofs[0].Verdict != catalog.NotRun {
			t.Errorf("%s: the proofs are %+v", name, b.Proofs)
		}
	}
	r := b.with(t, t.TempDir(), "", nil)
	run(t, r.flags("verify", "--level", "hashed", "--identity", b.other.file)...).Failed(t, 3, b.objectKey)
	run(t, r.flags("verify", "--level", "hashed")...).Succeeded(t, nil) // the sealed bytes need no key
	parent := t.TempDir()
	run(t, r.flags("fetch", "--identity", b.other.file, "--to", filepath.Join(parent, "snapshot.db"))...).Failed(t, 3, b.objectKey)
	nothingIn(t, parent)
}

// TestStoreThatFails checks that an unreadable store does not count as damage.
func TestStoreThatFails(t *testing.T) {
	if testing.Short() {
		return
	}
	b := needBase(t)
	path := filepath.Join(t.TempDir(), "file")
	err := os.WriteFile(path, nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	run(t, repo(path).flags("list")...).Failed(t, 1, path)
	verifyAndRestore(t, b, repo(path), 1, path)
}
