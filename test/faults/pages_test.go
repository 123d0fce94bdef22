package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/soak"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const pageSize = 4096

// TestDamagedPages uses databases that were damaged before the backup: all digests are right, and opening one may
// panic, fault or hang. dr reports the stage of the failure in one line.
func TestDamagedPages(t *testing.T) {
	if testing.Short() {
		return
	}
	p := newPages(t)
	for i := range 20 {
		p.trial(t, seed(t)+uint64(i))
	}
	p.report(t)
}

func TestSoakDamagedPages(t *testing.T) {
	if !soak.On() {
		return
	}
	p := newPages(t)
	end := time.Now().Add(soakTime(t))
	for i := seed(t); time.Now().Before(end); i++ {
		p.trial(t, i)
	}
	p.report(t)
}

// pages damages pages of the small backup's database.
type pages struct {
	*base
	plain   []byte // without the digest at its end
	dir     string
	cluster *repository.Cluster
	trials  int
	found   map[string]int // the stages in which damage was found
}

func newPages(t *testing.T) *pages {
	t.Helper()
	p := &pages{base: needBase(t), dir: t.TempDir(), found: map[string]int{}}
	plain, err := os.ReadFile(p.snapshot)
	if err != nil {
		t.Fatal(err)
	}
	p.plain = plain[:len(plain)-sha256.Size]
	p.repo = repo(filepath.Join(p.dir, "repo"))
	bucket, err := file.Create(string(p.repo))
	if err != nil {
		t.Fatal(err)
	}
	p.cluster, err = repository.Open(bucket, clusterName)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pages) report(t *testing.T) {
	t.Helper()
	t.Logf("%d trials from seed %d, what restore found: %v", p.trials, seed(t), p.found)
	if p.found["check"] == 0 || p.found["prove"] == 0 {
		t.Errorf("the damage was too much alike: %v", p.found)
	}
}

// trial backs up a damaged database, and runs all verbs on it that open it.
func (p *pages) trial(t *testing.T, seed uint64) {
	t.Helper()
	p.trials++
	damaged := damagedPages(p.plain, seed)
	id := p.store(t, damaged)
	stage := p.restore(t, seed, damaged, p.repo.flags("restore", string(id), "--old-is-dead"), "proven")
	p.found[stage]++
	p.verify(t, seed, id, "opened", stage)
	if stage == "nothing" {
		p.verify(t, seed, id, "booted", stage)
	}

	path := filepath.Join(p.dir, "damaged.db")
	err := os.WriteFile(path, damaged, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	// Without a HashKV to compare with, a damaged value passes.
	p.restore(t, seed, damaged, []string{"restore", "--from-file", path, "--skip-hash-check", "--initial-cluster", "m1=http://127.0.0.1:2380"}, "")
}

// damagedPages overwrites three pages with random bytes, completely or in a few places.
func damagedPages(plain []byte, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 6))
	damaged := bytes.Clone(plain)
	for _, page := range random.Perm(len(plain) / pageSize)[:3] {
		from, size := 0, pageSize
		if seed%2 == 0 {
			size = 1 + random.IntN(256)
			from = random.IntN(pageSize - size)
		}
		for i := range size {
			damaged[page*pageSize+from+i] = byte(random.Uint32())
		}
	}
	return damaged
}

// compaction returns the database's marks of its compaction. It is only for a database that dr has found intact.
func compaction(t *testing.T, database []byte) (marks string) {
	t.Helper()
	edited(t, database, func(tx *bolt.Tx) {
		meta := tx.Bucket([]byte("meta"))
		marks = fmt.Sprintf("%x %x", meta.Get([]byte("scheduledCompactRev")), meta.Get([]byte("finishedCompactRev")))
	})
	return marks
}

// edited returns a database after change.
func edited(t *testing.T, database []byte, change func(*bolt.Tx)) []byte {
	t.Helper()
	edited, err := testdb.Edited(database, func(tx *bolt.Tx) error {
		change(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

// TestDamageOutsideTheKeySpace damages data outside of the key space, which the HashKV does not cover, and of the
// structure of pages. A server would not start with some of it.
func TestDamageOutsideTheKeySpace(t *testing.T) {
	if testing.Short() {
		return
	}
	p := newPages(t)
	garbage := []byte("\xff\xff\xff garbage")
	put := func(bucket, key string, value []byte) []byte {
		return edited(t, p.plain, func(tx *bolt.Tx) {
			err := tx.Bucket([]byte(bucket)).Put([]byte(key), value)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	var lease string
	edited(t, p.plain, func(tx *bolt.Tx) {
		key, _ := tx.Bucket([]byte("lease")).Cursor().First()
		lease = string(key)
	})
	for name, database := range map[string][]byte{
		"lease":             put("lease", lease, garbage),
		"user":              put("authUsers", "alice", garbage),
		"role":              put("authRoles", "app", garbage),
		"compaction undone": edited(t, p.plain, uncompact),
		"keys out of order": bytes.ReplaceAll(p.plain, []byte("consistent_index"), []byte("zonsistent_index")),
	} {
		t.Run(name, func(t *testing.T) {
			p.trials++
			id := p.store(t, database)
			stage := p.restore(t, 0, database, p.repo.flags("restore", string(id), "--old-is-dead"), "no success is right")
			p.verify(t, 0, id, "opened", stage)
		})
	}
}

// uncompact removes the marks of a compaction that the member had done before it hashed.
func uncompact(tx *bolt.Tx) {
	for _, key := range []string{"scheduledCompactRev", "finishedCompactRev"} {
		_ = tx.Bucket([]byte("meta")).Delete([]byte(key)) // fails only in a read-only transaction
	}
}

// store stores a backup of a database as dr backup would, with the manifest of the good one.
func (p *pages) store(t *testing.T, database []byte) catalog.ID {
	t.Helper()
	sum := sha256.Sum256(database)
	snapshot := append(bytes.Clone(database), sum[:]...)
	whole := sha256.Sum256(snapshot)
	sealed, err := seal.New(bytes.NewReader(snapshot), seal.Recipients{})
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	id := catalog.NewID(p.backup.Started.Add(time.Duration(p.trials)*time.Second), p.backup.Revision)
	manifest := p.backup.Manifest
	manifest.Plain = catalog.Blob{Name: "snapshot.db", Size: int64(len(snapshot)), SHA256: hex.EncodeToString(whole[:])}
	_, err = stored.CreateFrom(t.Context(), p.cluster, id, seal.Recipients{}.Seal(), sealed, func() (catalog.Manifest, error) { return manifest, nil })
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// restore runs a restore, which succeeds with these words about the HashKV, or finds damage; it returns the stage.
func (p *pages) restore(t *testing.T, seed uint64, database []byte, args []string, words string) (stage string) {
	t.Helper()
	parent := t.TempDir()
	o := run(t, append(args, "--output-dir", filepath.Join(parent, "restored"))...)
	if o.Code != 0 {
		o.Failed(t, 3, "damaged", "stage "+o.Stage)
		nothingIn(t, parent)
		return o.Stage
	}
	var result document.Restore
	o.Succeeded(t, &result)
	// Other marks cannot be distinguished from a compaction between the hash and the snapshot.
	compacted := words == "proven" && strings.Contains(result.HashKV, "compacted") && compaction(t, database) != compaction(t, p.plain)
	if !strings.Contains(result.HashKV, words) && !compacted {
		t.Errorf("seed %d: restored, and the HashKV is %q", seed, result.HashKV)
	}
	return "nothing"
}

// verify must find the same damage as the restore, in the same stage, and append a proof.
func (p *pages) verify(t *testing.T, seed uint64, id catalog.ID, level, stage string) {
	t.Helper()
	scratch := t.TempDir()
	o := run(t, p.repo.flags("verify", string(id), "--level", level, "--scratch-dir", scratch)...)
	nothingIn(t, scratch)
	if o.Code != 0 {
		o.Failed(t, 3, "damaged", "stage "+o.Stage)
		failedProof(t, p.repo, id)
	} else {
		o.Succeeded(t, nil)
	}
	found := o.Code != 0
	if found != (stage != "nothing") || found && o.Stage != stage {
		t.Errorf("seed %d: restore found damage at %s, verify --level %s:\n%s", seed, stage, level, fmt.Sprint(o))
	}
}
