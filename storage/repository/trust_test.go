package repository_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// tombstoneName is a name that a tombstone may have.
const tombstoneName = "tombstone-0123456789abcdef.json"

// signer is somebody with a key.
type signer struct {
	key    sign.Key
	public string
}

func newSigner(tb testing.TB) signer {
	tb.Helper()
	secret, public, err := sign.Generate()
	if err != nil {
		tb.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return signer{key, public}
}

func openWith(tb testing.TB, b storage.Bucket, p repository.Policy) *repository.Cluster {
	tb.Helper()
	c, err := repository.OpenWith(b, "c", p)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// unsigned shows manifests without their signatures.
type unsigned struct{ storage.Bucket }

func (u unsigned) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, object, err := u.Bucket.Open(ctx, key, o)
	if err != nil || !strings.HasSuffix(key, "/manifest.json") {
		return r, object, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if stripped, e := document.WithSignature(data, ""); e == nil {
		data, object.Size = stripped, int64(len(stripped))
	}
	return io.NopCloser(bytes.NewReader(data)), object, err
}

// openForger opens the cluster for somebody without a key, who writes all the same where everything is signed.
func openForger(tb testing.TB, b storage.Bucket) *repository.Cluster {
	tb.Helper()
	return openCluster(tb, unsigned{b}, "c")
}

func trust(tb testing.TB, keys ...string) repository.Policy {
	tb.Helper()
	t, err := sign.ParseTrust(keys...)
	if err != nil {
		tb.Fatal(err)
	}
	return repository.Policy{Trust: t}
}

func read(tb testing.TB, b storage.Bucket, key string) []byte {
	tb.Helper()
	r, _, err := b.Open(tb.Context(), key, storage.OpenOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	var p bytes.Buffer
	if _, err := p.ReadFrom(r); err != nil {
		tb.Fatal(err)
	}
	return p.Bytes()
}

func write(tb testing.TB, b storage.Bucket, key string, p []byte) {
	tb.Helper()
	if _, err := b.Put(tb.Context(), key, bytes.NewReader(p), storage.PutOptions{}); err != nil {
		tb.Fatal(err)
	}
}

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

// Whoever can write to the store can add newer backups, alter manifests, and write junk. None of it counts, and none of it
// hides what is signed.
func TestForgedBackups(t *testing.T) {
	b, owner, attacker := mem.New(), newSigner(t), newSigner(t)
	create(t, openWith(t, b, repository.Policy{Key: owner.key}), idAt(0))
	create(t, openWith(t, b, repository.Policy{Key: owner.key}), idAt(1))
	create(t, openWith(t, b, repository.Policy{Key: attacker.key}), idAt(2))
	create(t, openForger(t, b), idAt(3))
	create(t, openForger(t, b), idAt(4))
	write(t, b, folder("c", idAt(4))+"manifest.json", []byte("junk"))
	altered := folder("c", idAt(1)) + "manifest.json"
	signed := read(t, b, altered)
	forged, err := document.WithSignature(rewritten(t, signed, `"revision": 1000`, `"revision": 1001`), document.Signature(signed))
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, altered, forged)

	cat := load(t, openWith(t, b, trust(t, owner.public)), repository.LoadOptions{})
	wantIDs(t, cat, []catalog.ID{idAt(0)}, nil)
	if got, want := untrustedIDs(t, cat), []catalog.ID{idAt(4), idAt(3), idAt(2), idAt(1)}; !slices.Equal(got, want) {
		t.Errorf("untrusted %q, want %q", got, want)
	}
	if newest, err := cat.Latest(); err != nil || newest.ID != idAt(0) {
		t.Errorf("the newest is %s, error %v", newest.ID, err)
	}
	if _, err := cat.Find(idAt(3)); !errors.Is(err, sign.ErrUntrusted) {
		t.Errorf("one that is not trusted is found, with the error %v", err)
	}
	both := load(t, openWith(t, b, trust(t, attacker.public, owner.public)), repository.LoadOptions{})
	wantIDs(t, both, []catalog.ID{idAt(2), idAt(0)}, nil)
	nobody := load(t, openWith(t, b, trust(t, newSigner(t).public)), repository.LoadOptions{})
	if _, err := nobody.Latest(); !errors.Is(err, sign.ErrUntrusted) {
		t.Errorf("no backup is trusted, and the newest one gives the error %v", err)
	}
	wantIDs(t, load(t, openCluster(t, b, "c"), repository.LoadOptions{}),
		[]catalog.ID{idAt(3), idAt(2), idAt(1), idAt(0)}, []catalog.ID{idAt(4)})
}

// A document that was signed for one place counts at no other.
func TestSignedBackupMoved(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	create(t, openWith(t, b, repository.Policy{Key: owner.key}), idAt(0))
	for _, name := range []string{"manifest.json", plainName} {
		write(t, b, folder("c", idAt(5))+name, read(t, b, folder("c", idAt(0))+name))
	}
	cat := load(t, openWith(t, b, trust(t, owner.public)), repository.LoadOptions{})
	wantIDs(t, cat, []catalog.ID{idAt(0)}, nil)
	if got := untrustedIDs(t, cat); !slices.Equal(got, []catalog.ID{idAt(5)}) {
		t.Errorf("untrusted %q", got)
	}
}

// Whatever somebody puts into the place of a newer manifest, the newest that is trusted is found.
func TestJunkHidesNothing(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	mine := openWith(t, b, repository.Policy{Key: owner.key})
	create(t, mine, idAt(0))
	proof := catalog.Proof{Backup: idAt(0), Level: catalog.Opened, Verdict: catalog.Passed, Time: noon}
	if err := mine.Append(t.Context(), proof); err != nil {
		t.Fatal(err)
	}
	var signedProof []byte
	for o := range b.List(t.Context(), storage.ListOptions{Prefix: folder("c", idAt(0)) + "proof-"}) {
		signedProof = read(t, b, o.Key)
	}
	for i, junk := range [][]byte{
		nil, []byte("junk"), make([]byte, 2<<20), signedProof, read(t, b, folder("c", idAt(0))+"manifest.json"),
	} {
		write(t, b, folder("c", idAt(5))+"manifest.json", junk)
		cat := load(t, openWith(t, b, trust(t, owner.public)), repository.LoadOptions{})
		if newest, err := cat.Latest(); err != nil || newest.ID != idAt(0) {
			t.Errorf("junk %d: the newest is %s, error %v", i, newest.ID, err)
		}
		if got := untrustedIDs(t, cat); !slices.Equal(got, []catalog.ID{idAt(5)}) {
			t.Errorf("junk %d: untrusted %q", i, got)
		}
	}
}

// Who signs and does not say whom to trust removes nothing for a tombstone that is not its own.
func TestForgedTombstoneAndASigner(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	mine := openWith(t, b, repository.Policy{Key: owner.key})
	create(t, mine, idAt(0))
	forged, err := repository.Tombstones.Encode(repository.Tombstone{Format: repository.Tombstones.Format, Backup: idAt(0), Time: noon})
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, folder("c", idAt(0))+tombstoneName, forged)
	if swept, err := mine.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour)); err != nil || len(swept) != 0 {
		t.Errorf("%d objects are removed, error %v", len(swept), err)
	}
	wantIDs(t, load(t, mine, repository.LoadOptions{}), []catalog.ID{idAt(0)}, nil)
}

// A tombstone stays for as long as anything that it stands for, or the backup would be back.
func TestTombstoneGoesLast(t *testing.T) {
	b := mem.New()
	locked := openWith(t, b, repository.Policy{Lock: repository.Lock{For: time.Hour}})
	create(t, locked, idAt(0))
	c := openCluster(t, b, "c")
	if err := c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Time: noon}); !errors.Is(err, storage.ErrLocked) {
		t.Fatal(err)
	}
	if swept, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour)); err != nil || len(swept) != 0 {
		t.Errorf("%d objects are removed, error %v", len(swept), err)
	}
	wantIDs(t, load(t, c, repository.LoadOptions{}), nil, nil)
}

func TestForgedProofs(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	mine := openWith(t, b, repository.Policy{Key: owner.key})
	create(t, mine, idAt(0))
	proof := catalog.Proof{Backup: idAt(0), Level: catalog.Opened, Verdict: catalog.Passed, Time: noon}
	if err := mine.Append(t.Context(), proof); err != nil {
		t.Fatal(err)
	}
	proof.Verdict, proof.Time = catalog.Failed, noon.Add(time.Hour)
	if err := openForger(t, b).Append(t.Context(), proof); err != nil {
		t.Fatal(err)
	}
	got := load(t, openWith(t, b, trust(t, owner.public)), repository.LoadOptions{Proofs: true}).Backups[0]
	if level, _ := got.Best(); level != catalog.Opened || len(got.Proofs) != 1 {
		t.Errorf("proven %s by %d proofs, want the one that is signed", level, len(got.Proofs))
	}
}

func TestDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		create(t, c, idAt(0))
		create(t, c, idAt(1))
		if err := c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Reason: "a test", Time: noon}); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, load(t, c, repository.LoadOptions{}), []catalog.ID{idAt(1)}, nil)
		err := c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Time: noon})
		if !errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("deleted twice: error %v", err)
		}
		if swept, err := c.Sweep(t.Context(), time.Hour, time.Now()); err != nil || len(swept) != 0 {
			t.Errorf("within the grace %d objects are removed, error %v", len(swept), err)
		}
		if _, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		for o := range b.List(t.Context(), storage.ListOptions{Prefix: folder("c", idAt(0))}) {
			t.Errorf("%s is left", o.Key)
		}
		wantIDs(t, load(t, c, repository.LoadOptions{}), []catalog.ID{idAt(1)}, nil)
	})
}

// A locked backup is deleted by its tombstone alone, which must be trusted, and survives with every object.
func TestDeleteLocked(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	policy := trust(t, owner.public)
	policy.Key, policy.Lock = owner.key, repository.Lock{For: time.Hour}
	c := openWith(t, b, policy)
	create(t, c, idAt(0))
	for o := range b.List(t.Context(), storage.ListOptions{}) {
		if err := b.Delete(t.Context(), o.Key, storage.DeleteOptions{}); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("Delete(%q): error %v", o.Key, err)
		}
		if err := b.Delete(t.Context(), o.Key, storage.DeleteOptions{Version: o.Version}); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("Delete(%q, its version): error %v", o.Key, err)
		}
	}
	forged, err := repository.Tombstones.Encode(repository.Tombstone{Format: repository.Tombstones.Format, Backup: idAt(0), Time: noon})
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, folder("c", idAt(0))+tombstoneName, forged)
	cat := load(t, c, repository.LoadOptions{})
	wantIDs(t, cat, []catalog.ID{idAt(0)}, nil)
	if len(cat.Ignored) != 1 || !errors.Is(cat.Ignored[0].Err, sign.ErrUntrusted) {
		t.Errorf("the forged tombstone is reported as %+v", cat.Ignored)
	}
	if swept, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour)); err != nil || len(swept) != 0 {
		t.Errorf("%d objects are removed, error %v", len(swept), err)
	}
	if err := b.Delete(t.Context(), folder("c", idAt(0))+tombstoneName, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Time: noon}); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("Delete of a locked backup: error %v", err)
	}
	wantIDs(t, load(t, c, repository.LoadOptions{}), nil, nil)
	if swept, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour)); err != nil || len(swept) != 0 {
		t.Errorf("%d locked objects are removed, error %v", len(swept), err)
	}
}

func TestForgedSegments(t *testing.T) {
	const lineage = "0123456789abcdef0123456789abcdef"
	b, owner := mem.New(), newSigner(t)
	mine := openWith(t, b, repository.Policy{Key: owner.key})
	w := newWriter(t, "c", lineage)
	w.key = owner.key
	good := w.some(3)
	storeSegments(t, mine, good...)
	storeIndex(t, mine, segmentsOf(good))
	w.key = sign.Key{}
	storeSegments(t, mine, w.some(2)...)
	storeIndex(t, mine, segmentsOf([]segment.Encoded{w.next()}))

	trusting := openWith(t, b, trust(t, owner.public))
	l, err := trusting.LoadLineage(t.Context(), lineage)
	if err != nil {
		t.Fatal(err)
	}
	if count(l) != 3 || len(l.Faults) == 0 || !errors.Is(l.Faults[0].Err, sign.ErrUntrusted) {
		t.Errorf("%d segments, faults %+v, want the three that are signed", count(l), l.Faults)
	}
	tail, err := trusting.LogTail(t.Context())
	if err != nil || tail.Last.Seq != 3 || !errors.Is(tail.Broken, sign.ErrUntrusted) {
		t.Errorf("the log ends at segment %d, broken %v, error %v", tail.Last.Seq, tail.Broken, err)
	}
	if l, err = openCluster(t, b, "c").LoadLineage(t.Context(), lineage); err != nil || count(l) != 5 {
		t.Errorf("without --trust there are %d segments, error %v", count(l), err)
	}
}

// TestMinisign: the signature of a manifest is one that minisign itself verifies, as the documentation says.
func TestMinisign(t *testing.T) {
	if _, err := exec.LookPath("minisign"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	b, owner := mem.New(), newSigner(t)
	create(t, openWith(t, b, repository.Policy{Key: owner.key}), idAt(0))
	manifest := read(t, b, folder("c", idAt(0))+"manifest.json")
	lines := strings.SplitAfter(string(manifest), "\n")
	var fields struct{ Signature string }
	if err := json.Unmarshal(manifest, &fields); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	verify := func(covered string) error {
		for name, text := range map[string]string{"m": covered, "m.minisig": fields.Signature} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return exec.CommandContext(t.Context(), "minisign", "-V", "-P", owner.public, "-m", filepath.Join(dir, "m")).Run()
	}
	covered := strings.Join(lines[:len(lines)-4], "") // the last three lines, and nothing behind the last
	if err := verify(covered); err != nil {
		t.Errorf("minisign does not verify the manifest: %v", err)
	}
	if verify(covered+" ") == nil {
		t.Error("minisign verifies another text too")
	}
}

// A policy that signs and names no trusted key believes its own key alone: else a forged backup would count as one of its
// own, and stand in the place of the next one.
func TestSigningKeyIsTrusted(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	mine := openWith(t, b, repository.Policy{Key: owner.key})
	create(t, mine, idAt(0))
	create(t, openForger(t, b), idAt(1))
	storeSegments(t, openForger(t, b), newWriter(t, "c", lineageID(1)).some(1)...)
	cat := load(t, mine, repository.LoadOptions{Log: true})
	wantIDs(t, cat, []catalog.ID{idAt(0)}, nil)
	if got := untrustedIDs(t, cat); !slices.Equal(got, []catalog.ID{idAt(1)}) {
		t.Errorf("untrusted %q", got)
	}
	wantLineage(t, "a forged log", cat.Lineages[0], "", "1 damaged")
}

// Without the key nothing is added to a repository that is signed: it would count for nothing, and hide that.
func TestUnsignedWriteIsRefused(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	c := openCluster(t, b, "c")
	create(t, c, idAt(0)) // nothing is signed yet
	create(t, openWith(t, b, repository.Policy{Key: owner.key}), idAt(1))
	before := keys(t, b)
	c = openCluster(t, b, "c")
	_, err := tryCreate(t, c, idAt(2), manifestOf(content, noon))
	wantError(t, "a backup", err, repository.ErrUnsigned)
	wantError(t, "a proof", c.Append(t.Context(), proofOf(idAt(1), catalog.Opened, catalog.Passed, 1)), repository.ErrUnsigned)
	_, err = c.Pin(t.Context(), catalog.Pin{Backup: idAt(1), Time: noon})
	wantError(t, "a pin", err, repository.ErrUnsigned)
	wantError(t, "a tombstone", c.Delete(t.Context(), repository.Tombstone{Backup: idAt(1), Time: noon}), repository.ErrUnsigned)
	wantError(t, "a segment", c.StoreSegment(t.Context(), newWriter(t, "c", lineageID(1)).next()), repository.ErrUnsigned)
	_, err = c.WriteSuspension(t.Context(), repository.Suspension{Suspended: true, Time: noon})
	wantError(t, "a suspension", err, repository.ErrUnsigned)
	if after := keys(t, b); !slices.Equal(before, after) {
		t.Errorf("there was %q, and now there is %q", before, after)
	}
	create(t, openWith(t, b, repository.Policy{Key: owner.key}), idAt(3))
}
