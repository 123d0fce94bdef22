package repository_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func untrustedIDs(tb testing.TB, c catalog.Catalog) (all []catalog.ID) {
	tb.Helper()
	for _, d := range c.Untrusted {
		if !errors.Is(d.Err, sign.ErrUntrusted) || !errors.Is(d.Err, catalog.ErrDamaged) {
			tb.Errorf("%s is untrusted with the error %v", d.ID, d.Err)
		}
		all = append(all, d.ID)
	}
	return all
}

// An attacker who can write to the store can add newer backups, change manifests, and write junk. None of it counts, and none
// of it hides signed backups.
func TestForgedBackups(t *testing.T) {
	b, owner, attacker := mem.New(), stored.NewSigner(t), stored.NewSigner(t)
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: owner.Key}), stored.IDAt(0))
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: owner.Key}), stored.IDAt(1))
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: attacker.Key}), stored.IDAt(2))
	stored.Create(t, stored.OpenForger(t, b), stored.IDAt(3))
	stored.Create(t, stored.OpenForger(t, b), stored.IDAt(4))
	stored.Put(t, b, stored.Folder("c", stored.IDAt(4))+"manifest.json", []byte("junk"))
	altered := stored.Folder("c", stored.IDAt(1)) + "manifest.json"
	signed := stored.Get(t, b, altered)
	forged, err := document.WithSignature(stored.Rewritten(t, signed, `"revision": 1000`, `"revision": 1001`), document.Signature(signed))
	if err != nil {
		t.Fatal(err)
	}
	stored.Put(t, b, altered, forged)

	cat := stored.Load(t, stored.OpenWith(t, b, stored.Trust(t, owner.Public)), backups.LoadOptions{})
	stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(0)}, nil)
	got, want := untrustedIDs(t, cat), []catalog.ID{stored.IDAt(4), stored.IDAt(3), stored.IDAt(2), stored.IDAt(1)}
	if !slices.Equal(got, want) {
		t.Errorf("untrusted %q, want %q", got, want)
	}
	newest, err := cat.Latest()
	if err != nil || newest.ID != stored.IDAt(0) {
		t.Errorf("the newest is %s, error %v", newest.ID, err)
	}
	_, err = cat.Find(stored.IDAt(3))
	if !errors.Is(err, sign.ErrUntrusted) {
		t.Errorf("one that is not trusted is found, with the error %v", err)
	}
	both := stored.Load(t, stored.OpenWith(t, b, stored.Trust(t, attacker.Public, owner.Public)), backups.LoadOptions{})
	stored.WantIDs(t, both, []catalog.ID{stored.IDAt(2), stored.IDAt(0)}, nil)
	nobody := stored.Load(t, stored.OpenWith(t, b, stored.Trust(t, stored.NewSigner(t).Public)), backups.LoadOptions{})
	_, err = nobody.Latest()
	if !errors.Is(err, sign.ErrUntrusted) {
		t.Errorf("no backup is trusted, and the newest one gives the error %v", err)
	}
	stored.WantIDs(t, stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{}),
		[]catalog.ID{stored.IDAt(3), stored.IDAt(2), stored.IDAt(1), stored.IDAt(0)}, []catalog.ID{stored.IDAt(4)})
}

// A document that was signed for one place does not count at another.
func TestSignedBackupMoved(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: owner.Key}), stored.IDAt(0))
	for _, name := range []string{"manifest.json", stored.PlainName} {
		stored.Put(t, b, stored.Folder("c", stored.IDAt(5))+name, stored.Get(t, b, stored.Folder("c", stored.IDAt(0))+name))
	}
	cat := stored.Load(t, stored.OpenWith(t, b, stored.Trust(t, owner.Public)), backups.LoadOptions{})
	stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(0)}, nil)
	got := untrustedIDs(t, cat)
	if !slices.Equal(got, []catalog.ID{stored.IDAt(5)}) {
		t.Errorf("untrusted %q", got)
	}
}

// Whatever an attacker stores as a newer manifest, Load finds the newest trusted backup.
func TestJunkDoesNotHideBackups(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	mine := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	stored.Create(t, mine, stored.IDAt(0))
	proof := catalog.Proof{Backup: stored.IDAt(0), Level: catalog.Opened, Verdict: catalog.Passed, Time: stored.Noon}
	err := mine.Append(t.Context(), proof)
	if err != nil {
		t.Fatal(err)
	}
	var signedProof []byte
	for o := range b.List(t.Context(), storage.ListOptions{Prefix: stored.Folder("c", stored.IDAt(0)) + "proof-"}) {
		signedProof = stored.Get(t, b, o.Key)
	}
	for i, junk := range [][]byte{
		nil, []byte("junk"), make([]byte, 2<<20), signedProof, stored.Get(t, b, stored.Folder("c", stored.IDAt(0))+"manifest.json"),
	} {
		stored.Put(t, b, stored.Folder("c", stored.IDAt(5))+"manifest.json", junk)
		cat := stored.Load(t, stored.OpenWith(t, b, stored.Trust(t, owner.Public)), backups.LoadOptions{})
		newest, err := cat.Latest()
		if err != nil || newest.ID != stored.IDAt(0) {
			t.Errorf("junk %d: the newest is %s, error %v", i, newest.ID, err)
		}
		got := untrustedIDs(t, cat)
		if !slices.Equal(got, []catalog.ID{stored.IDAt(5)}) {
			t.Errorf("junk %d: untrusted %q", i, got)
		}
	}
}

// A policy with a signing key and no trusted keys removes nothing because of a tombstone by another key.
func TestForgedTombstoneAndASigner(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	mine := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	stored.Create(t, mine, stored.IDAt(0))
	forged, err := catalog.Tombstones.Encode(catalog.Tombstone{Format: catalog.Tombstones.Format, Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+stored.TombstoneName, forged)
	swept, err := mine.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour))
	if err != nil || len(swept) != 0 {
		t.Errorf("%d objects are removed, error %v", len(swept), err)
	}
	stored.WantIDs(t, stored.Load(t, mine, backups.LoadOptions{}), []catalog.ID{stored.IDAt(0)}, nil)
}

// A tombstone stays as long as any object of its backup, or the backup would be listed again.
func TestTombstoneGoesLast(t *testing.T) {
	b := mem.New()
	locked := stored.OpenWith(t, b, records.Policy{Lock: records.Lock{For: time.Hour}})
	stored.Create(t, locked, stored.IDAt(0))
	c := stored.OpenCluster(t, b, "c")
	err := c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
	if !errors.Is(err, storage.ErrLocked) {
		t.Fatal(err)
	}
	swept, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour))
	if err != nil || len(swept) != 0 {
		t.Errorf("%d objects are removed, error %v", len(swept), err)
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), nil, nil)
}

func TestForgedProofs(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	mine := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	stored.Create(t, mine, stored.IDAt(0))
	proof := catalog.Proof{Backup: stored.IDAt(0), Level: catalog.Opened, Verdict: catalog.Passed, Time: stored.Noon}
	err := mine.Append(t.Context(), proof)
	if err != nil {
		t.Fatal(err)
	}
	proof.Verdict, proof.Time = catalog.Failed, stored.Noon.Add(time.Hour)
	err = stored.OpenForger(t, b).Append(t.Context(), proof)
	if err != nil {
		t.Fatal(err)
	}
	got := stored.Load(t, stored.OpenWith(t, b, stored.Trust(t, owner.Public)), backups.LoadOptions{Proofs: true}).Backups[0]
	level, _ := got.Best()
	if level != catalog.Opened || len(got.Proofs) != 1 {
		t.Errorf("proven %s by %d proofs, want the one that is signed", level, len(got.Proofs))
	}
}

func TestDelete(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		stored.Create(t, c, stored.IDAt(0))
		stored.Create(t, c, stored.IDAt(1))
		err := c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Reason: "a test", Time: stored.Noon})
		if err != nil {
			t.Fatal(err)
		}
		stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(1)}, nil)
		err = c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
		if !errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("deleted twice: error %v", err)
		}
		swept, err := c.Sweep(t.Context(), time.Hour, time.Now())
		if err != nil || len(swept) != 0 {
			t.Errorf("within the grace %d objects are removed, error %v", len(swept), err)
		}
		_, err = c.Sweep(t.Context(), time.Hour, time.Now().Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for o := range b.List(t.Context(), storage.ListOptions{Prefix: stored.Folder("c", stored.IDAt(0))}) {
			t.Errorf("%s is left", o.Key)
		}
		stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(1)}, nil)
	})
}

// A locked backup is deleted only by its tombstone, which must be trusted. All its objects stay.
func TestDeleteLocked(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	policy := stored.Trust(t, owner.Public)
	policy.Key, policy.Lock = owner.Key, records.Lock{For: time.Hour}
	c := stored.OpenWith(t, b, policy)
	stored.Create(t, c, stored.IDAt(0))
	for o := range b.List(t.Context(), storage.ListOptions{}) {
		err := b.Delete(t.Context(), o.Key, storage.DeleteOptions{})
		if !errors.Is(err, storage.ErrLocked) {
			t.Errorf("Delete(%q): error %v", o.Key, err)
		}
		err = b.Delete(t.Context(), o.Key, storage.DeleteOptions{Version: o.Version})
		if !errors.Is(err, storage.ErrLocked) {
			t.Errorf("Delete(%q, its version): error %v", o.Key, err)
		}
	}
	forged, err := catalog.Tombstones.Encode(catalog.Tombstone{Format: catalog.Tombstones.Format, Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+stored.TombstoneName, forged)
	cat := stored.Load(t, c, backups.LoadOptions{})
	stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(0)}, nil)
	if len(cat.Ignored) != 1 || !errors.Is(cat.Ignored[0].Err, sign.ErrUntrusted) {
		t.Errorf("the forged tombstone is reported as %+v", cat.Ignored)
	}
	swept, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour))
	if err != nil || len(swept) != 0 {
		t.Errorf("%d objects are removed, error %v", len(swept), err)
	}
	err = b.Delete(t.Context(), stored.Folder("c", stored.IDAt(0))+stored.TombstoneName, storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
	if !errors.Is(err, storage.ErrLocked) {
		t.Errorf("Delete of a locked backup: error %v", err)
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), nil, nil)
	swept, err = c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour))
	if err != nil || len(swept) != 0 {
		t.Errorf("%d locked objects are removed, error %v", len(swept), err)
	}
}

func TestForgedSegments(t *testing.T) {
	const lineage = "0123456789abcdef0123456789abcdef"
	b, owner := mem.New(), stored.NewSigner(t)
	mine := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	w := stored.NewWriter(t, "c", lineage)
	w.Key = owner.Key
	good := w.Some(3)
	stored.StoreSegments(t, mine, good...)
	stored.StoreIndex(t, mine, stored.SegmentsOf(good))
	w.Key = sign.Key{}
	stored.StoreSegments(t, mine, w.Some(2)...)
	stored.StoreIndex(t, mine, stored.SegmentsOf([]segment.Encoded{w.Next()}))

	trusting := stored.OpenWith(t, b, stored.Trust(t, owner.Public))
	l, err := trusting.Log().LoadRange(t.Context(), lineage, 1, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Count(l) != 3 || len(l.Faults) == 0 || !errors.Is(l.Faults[0].Err, sign.ErrUntrusted) {
		t.Errorf("%d segments, faults %+v, want the three that are signed", stored.Count(l), l.Faults)
	}
	tail, err := trusting.Log().Tail(t.Context())
	if err != nil || tail.Last.Seq != 3 || !errors.Is(tail.Broken, sign.ErrUntrusted) {
		t.Errorf("the log ends at segment %d, broken %v, error %v", tail.Last.Seq, tail.Broken, err)
	}
	l, err = stored.OpenCluster(t, b, "c").Log().LoadRange(t.Context(), lineage, 1, math.MaxInt64)
	if err != nil || stored.Count(l) != 5 {
		t.Errorf("without --trust there are %d segments, error %v", stored.Count(l), err)
	}
}

// TestMinisign checks that minisign verifies the signature of a manifest, as the documentation describes.
func TestMinisign(t *testing.T) {
	_, err := exec.LookPath("minisign")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	b, owner := mem.New(), stored.NewSigner(t)
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: owner.Key}), stored.IDAt(0))
	manifest := stored.Get(t, b, stored.Folder("c", stored.IDAt(0))+"manifest.json")
	lines := strings.SplitAfter(string(manifest), "\n")
	var fields struct{ Signature string }
	err = json.Unmarshal(manifest, &fields)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	verify := func(covered string) error {
		for name, text := range map[string]string{"m": covered, "m.minisig": fields.Signature} {
			err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
			if err != nil {
				t.Fatal(err)
			}
		}
		return exec.CommandContext(t.Context(), "minisign", "-V", "-P", owner.Public, "-m", filepath.Join(dir, "m")).Run()
	}
	covered := strings.Join(lines[:len(lines)-4], "") // without the last three lines
	err = verify(covered)
	if err != nil {
		t.Errorf("minisign does not verify the manifest: %v", err)
	}
	if verify(covered+" ") == nil {
		t.Error("minisign verifies another text too")
	}
}

// A policy with a signing key and no trusted keys trusts only its own key. A forged backup would otherwise count as its own,
// and take the place of the next one.
func TestSigningKeyIsTrusted(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	mine := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	stored.Create(t, mine, stored.IDAt(0))
	stored.Create(t, stored.OpenForger(t, b), stored.IDAt(1))
	stored.StoreSegments(t, stored.OpenForger(t, b), stored.NewWriter(t, "c", stored.LineageID(1)).Some(1)...)
	cat := stored.Load(t, mine, backups.LoadOptions{Log: true})
	stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(0)}, nil)
	got := untrustedIDs(t, cat)
	if !slices.Equal(got, []catalog.ID{stored.IDAt(1)}) {
		t.Errorf("untrusted %q", got)
	}
	stored.WantLineage(t, "a forged log", cat.Lineages[0], "", "1 damaged")
}

// A policy without a key writes nothing to a signed repository: readers would ignore it, and the operator would not notice.
func TestUnsignedWriteIsRefused(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0)) // allowed, as nothing is signed yet
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: owner.Key}), stored.IDAt(1))
	before := stored.Keys(t, b)
	c = stored.OpenCluster(t, b, "c")
	_, err := stored.TryCreate(t, c, stored.IDAt(2), stored.ManifestOf(stored.Content, stored.Noon))
	stored.WantError(t, "a backup", err, records.ErrUnsigned)
	stored.WantError(t, "a proof", c.Append(t.Context(), stored.ProofOf(stored.IDAt(1), catalog.Opened, catalog.Passed, 1)), records.ErrUnsigned)
	_, err = c.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(1), Time: stored.Noon})
	stored.WantError(t, "a pin", err, records.ErrUnsigned)
	stored.WantError(t, "a tombstone", c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(1), Time: stored.Noon}), records.ErrUnsigned)
	stored.WantError(t, "a segment", c.Log().StoreSegment(t.Context(), stored.NewWriter(t, "c", stored.LineageID(1)).Next()), records.ErrUnsigned)
	_, err = c.Services().Write(t.Context(), suspension.Suspension{Suspended: true, Time: stored.Noon})
	stored.WantError(t, "a suspension", err, records.ErrUnsigned)
	after := stored.Keys(t, b)
	if !slices.Equal(before, after) {
		t.Errorf("there was %q, and now there is %q", before, after)
	}
	stored.Create(t, stored.OpenWith(t, b, records.Policy{Key: owner.Key}), stored.IDAt(3))
}
