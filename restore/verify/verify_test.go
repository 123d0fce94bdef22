package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const (
	clusterName = "prod"
	keyCount    = 200
)

// database is a snapshot as a member sends it, without the digest, and its hash.
type database struct {
	bytes []byte
	hash  catalog.HashKV
}

var generated = sync.OnceValues(generate)

func generate() (database, error) {
	dir, err := os.MkdirTemp("", "dr-verify-fixture-*")
	if err != nil {
		return database{}, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	var d database
	err = testdb.Write(path, func(_ backend.Backend, store mvcc.KV) error {
		for i := range keyCount * 5 {
			store.Put(fmt.Appendf(nil, "key-%04d", i%keyCount), bytes.Repeat([]byte{byte(i)}, 300), lease.NoLease)
		}
		store.Commit()
		hash, revision, err := store.HashStorage().HashByRev(0)
		d.hash = catalog.HashKV{Revision: revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash}
		return err
	})
	if err != nil {
		return database{}, err
	}
	d.bytes, err = os.ReadFile(path)
	return d, err
}

func good(t testing.TB) database {
	t.Helper()
	d, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fixture is a repository with one backup, and an empty directory for scratch copies.
type fixture struct {
	dir, scratch string
	cluster      *repository.Cluster
	backup       catalog.Backup
	keys         seal.Keys
	to           seal.Recipients
}

// store writes d into a new repository, with digests that match its content. marks change its manifest.
func store(t testing.TB, d database, marks ...func(*catalog.Manifest)) fixture {
	t.Helper()
	f := fixture{dir: t.TempDir(), scratch: t.TempDir()}
	keys, to := stored.Pair(t)
	f.keys, f.to = keys, to
	bucket, err := file.Open(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	f.cluster, err = repository.Open(bucket, clusterName)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(d.bytes)
	plain := append(bytes.Clone(d.bytes), sum[:]...)
	sealed, err := seal.New(bytes.NewReader(plain), to)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	digest := sha256.Sum256(plain)
	started := time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC)
	member := catalog.Member{ID: "a", Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"},
		ClientURLs: []string{"http://127.0.0.1:1"}}
	f.backup, err = stored.CreateFrom(t.Context(), f.cluster, catalog.NewID(started, d.hash.Revision), to.Seal(), sealed,
		func() (catalog.Manifest, error) {
			m := catalog.Manifest{
				Started: started, Finished: started, DRVersion: "test", ClusterID: "cafe", Member: member, Members: []catalog.Member{member},
				EtcdVersion: "3.7.3", Revision: d.hash.Revision, HashKV: &d.hash,
				Plain: catalog.Blob{Name: "snapshot.db", Size: int64(len(plain)), SHA256: hex.EncodeToString(digest[:])},
			}
			for _, mark := range marks {
				mark(&m)
			}
			return m, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fixture) request(level catalog.Level) verify.Request {
	return verify.Request{Cluster: f.cluster, Backup: f.backup, Keys: f.keys, Level: level, Source: child.NewSource(child.Repository{URL: "file://" + f.dir, Options: stores.Options{}, Cluster: clusterName, Trust: sign.Trust{}}, f.keys),
		Dir: f.scratch, By: "host, dr test"}
}

// run verifies the backup and checks that one proof was added, the returned one, and that no scratch copy remains.
func (f fixture) run(t testing.TB, level catalog.Level) (catalog.Proof, error) {
	t.Helper()
	before := f.proofs(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a cycle of pages must not stop the test for ever
	defer cancel()
	proof, err := verify.Run(ctx, f.request(level), nil)
	after := f.proofs(t)
	if len(after) != len(before)+1 {
		t.Fatalf("there are %d proofs, there were %d", len(after), len(before))
	}
	last := after[len(after)-1]
	if last != proof {
		t.Errorf("stored is %+v, returned %+v", last, proof)
	}
	if proof.Level != level || proof.Backup != f.backup.ID || proof.By != "host, dr test" || proof.Finding == "" ||
		proof.Time.IsZero() {
		t.Errorf("proof %+v", proof)
	}
	f.wantNoScratch(t)
	return proof, err
}

func (f fixture) proofs(t testing.TB) []catalog.Proof {
	t.Helper()
	catalog, err := f.cluster.Load(t.Context(), backups.LoadOptions{Proofs: true})
	if err != nil || len(catalog.Backups) != 1 {
		t.Fatalf("catalog %+v, %v", catalog, err)
	}
	return catalog.Backups[0].Proofs
}

func (f fixture) wantNoScratch(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(f.scratch)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in the scratch directory: %v, %v", entries, err)
	}
}

func TestEveryRungPasses(t *testing.T) {
	d := good(t)
	f := store(t, d)
	for _, level := range catalog.Levels {
		proof, err := f.run(t, level)
		if err != nil || proof.Verdict != catalog.Passed || proof.Finding != "no fault found" {
			t.Errorf("%s: proof %+v, error %v", level, proof, err)
		}
		opened := proof.Key != ""
		if opened != (level != catalog.Stored) {
			t.Errorf("%s: the key is %q", level, proof.Key)
		}
		if level.Rank() < catalog.Opened.Rank() {
			if proof.HashKV != "" || proof.Revision != 0 || proof.Keys != 0 {
				t.Errorf("%s: proof %+v claims what nobody looked at", level, proof)
			}
			continue
		}
		want := fmt.Sprintf("key space proven at revision %d", d.hash.Revision)
		if level == catalog.Booted {
			want += ", on a booted server"
		}
		if proof.HashKV != want || proof.Revision != d.hash.Revision || proof.Keys != keyCount {
			t.Errorf("%s: proof %+v, want %q and %d keys", level, proof, want, keyCount)
		}
		backup := f.backup
		backup.Proofs = f.proofs(t)
		best, _ := backup.Best()
		if best != level {
			t.Errorf("after %s the best is %q", level, best)
		}
	}
}

func TestHashedWithoutAKeyNamesUncheckedParts(t *testing.T) {
	f := store(t, good(t))
	f.keys = seal.Keys{}
	proof, err := f.run(t, catalog.Hashed)
	if err != nil || proof.Verdict != catalog.Passed || !strings.Contains(proof.Finding, "without a key") ||
		proof.Key != "" {
		t.Errorf("proof %+v, error %v", proof, err)
	}
}

func TestAnotherHashFails(t *testing.T) {
	d := good(t)
	d.hash.Hash++
	f := store(t, d)
	for _, level := range []catalog.Level{catalog.Opened, catalog.Booted} {
		proof, err := f.run(t, level)
		if !errors.Is(err, catalog.ErrDamaged) || proof.Verdict != catalog.Failed ||
			!strings.Contains(proof.Finding, "HashKV at revision") {
			t.Errorf("%s: proof %+v, error %v", level, proof, err)
		}
	}
	proof, err := f.run(t, catalog.Hashed)
	if err != nil || proof.Verdict != catalog.Passed {
		t.Errorf("hashed: proof %+v, error %v", proof, err)
	}
}

func TestDamagedObjectFails(t *testing.T) {
	f := store(t, good(t))
	object := filepath.Join(f.dir, clusterName, "backups", string(f.backup.ID), f.backup.Stored.Name)
	data, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	err = os.WriteFile(object, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []catalog.Level{catalog.Hashed, catalog.Opened, catalog.Booted} {
		proof, err := f.run(t, level)
		if !errors.Is(err, catalog.ErrDamaged) || proof.Verdict != catalog.Failed ||
			!strings.Contains(proof.Finding, f.backup.Stored.Name) {
			t.Errorf("%s: proof %+v, error %v", level, proof, err)
		}
	}
	f.keys = seal.Keys{} // the sealed bytes have a digest too
	proof, err := f.run(t, catalog.Hashed)
	if !errors.Is(err, catalog.ErrDamaged) ||
		proof.Verdict != catalog.Failed {
		t.Errorf("hashed, without a key: proof %+v, error %v", proof, err)
	}
}

// bbolt and etcd end the process on some of these pages: that must be a finding of one line, and nothing may remain.
func TestRandomPagesAreFoundOrFree(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	var failed, passed int
	for seed := range seeds {
		d := good(t)
		d.bytes = withNoise(d.bytes, seed)
		f := store(t, d)
		proof, err := f.run(t, catalog.Opened)
		switch proof.Verdict {
		case catalog.Failed:
			failed++
			if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), "damaged") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("seed %d: error %v", seed, err)
			}
			if !strings.Contains(proof.Finding, "stage ") && !strings.Contains(proof.Finding, "HashKV at revision") &&
				!strings.Contains(proof.Finding, "its key space ends") {
				t.Errorf("seed %d: finding %q names no stage", seed, proof.Finding)
			}
		case catalog.Passed: // the pages were free
			passed++
			if err != nil || proof.HashKV != fmt.Sprintf("key space proven at revision %d", d.hash.Revision) ||
				proof.Keys != keyCount {
				t.Errorf("seed %d: proof %+v, error %v", seed, proof, err)
			}
		default:
			t.Errorf("seed %d: proof %+v, error %v", seed, proof, err)
		}
	}
	t.Logf("%d failed, %d passed", failed, passed)
	if failed == 0 {
		t.Error("no damage was found at all")
	}
}

// withNoise writes random bytes into three pages after the two meta pages.
func withNoise(data []byte, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 3))
	data = bytes.Clone(data)
	pages := len(data) / 4096
	for range 3 {
		page := 2 + random.IntN(pages-2)
		for i := range 4096 {
			data[page*4096+i] = byte(random.Uint32())
		}
	}
	return data
}

func TestWrongKeyIsNoVerdict(t *testing.T) {
	f := store(t, good(t))
	f.keys, _ = stored.Pair(t)
	for _, level := range []catalog.Level{catalog.Hashed, catalog.Opened, catalog.Booted} {
		proof, err := f.run(t, level)
		if !errors.Is(err, seal.ErrWrongKey) || proof.Verdict != catalog.NotRun || proof.Key != "" {
			t.Errorf("%s: proof %+v, error %v", level, proof, err)
		}
	}
	f.keys = seal.Keys{}
	proof, err := f.run(t, catalog.Opened)
	if !errors.Is(err, seal.ErrWrongKey) ||
		proof.Verdict != catalog.NotRun {
		t.Errorf("without a key: proof %+v, error %v", proof, err)
	}
}

func TestNoScratchDirectoryIsNoVerdict(t *testing.T) {
	f := store(t, good(t))
	r := f.request(catalog.Opened)
	r.Dir = filepath.Join(f.scratch, "absent")
	proof, err := verify.Run(t.Context(), r, nil)
	if err == nil || errors.Is(err, catalog.ErrDamaged) || proof.Verdict != catalog.NotRun ||
		!strings.Contains(err.Error(), r.Dir) {
		t.Errorf("proof %+v, error %v", proof, err)
	}
	proofs := f.proofs(t)
	if len(proofs) != 1 || proofs[0].Verdict != catalog.NotRun {
		t.Errorf("proofs %+v", proofs)
	}
	f.wantNoScratch(t)
}

// A killed child shows nothing about the backup; one that dies by itself at a stage that reads the database does. Neither can
// remove its scratch copy.
func TestDeadChildLeavesNothing(t *testing.T) {
	f := store(t, good(t))
	for what, verdict := range map[string]catalog.Verdict{
		"kill prove": catalog.NotRun, "kill build": catalog.NotRun, "panic fetch": catalog.NotRun,
		"panic check": catalog.Failed, "panic boot": catalog.Failed,
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv(accident, what)
			proof, err := f.run(t, catalog.Booted)
			_, stage, _ := strings.Cut(what, " ")
			if err == nil || proof.Verdict != verdict || !strings.Contains(proof.Finding, "at stage "+stage) {
				t.Errorf("proof %+v, error %v", proof, err)
			}
		})
	}
}

// An interrupted run has no finding.
func TestInterruptedLeavesNoProof(t *testing.T) {
	f := store(t, good(t))
	for level, stages := range map[catalog.Level][]string{
		catalog.Hashed: {"fetch"}, catalog.Booted: {"ask", "fetch", "check", "prove", "build", "rename", "boot"},
	} {
		for _, stage := range stages {
			stop := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			proof, err := verify.Run(ctx, f.request(level), func(e storage.Event) {
				if e.Stage == stage {
					cancel(stop)
				}
			})
			if !errors.Is(err, stop) {
				t.Errorf("%s at %s: proof %+v, error %v", level, stage, proof, err)
			}
			f.wantNoScratch(t)
		}
	}
	proofs := f.proofs(t)
	if len(proofs) > 0 {
		t.Errorf("proofs %+v", proofs)
	}
}

func TestProofThatCannotBeStoredIsAnError(t *testing.T) {
	f := store(t, good(t))
	gone := errors.New("the bucket is read-only")
	c, err := repository.Open(readOnly{mustOpen(t, f.dir), gone}, clusterName)
	if err != nil {
		t.Fatal(err)
	}
	r := f.request(catalog.Hashed)
	r.Cluster = c
	proof, err := verify.Run(t.Context(), r, nil)
	if !errors.Is(err, gone) || proof.Verdict != catalog.Passed {
		t.Errorf("proof %+v, error %v", proof, err)
	}
}
