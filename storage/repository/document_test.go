package repository_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// fullManifest returns a manifest with every field set, and with characters that encoding/json escapes.
func fullManifest() catalog.Manifest {
	m := stored.ManifestOf(stored.Content, stored.Noon)
	m.Format, m.ID, m.Cluster = catalog.Manifests.Format, stored.IDAt(0), "prod-eu.1"
	m.Finished = stored.Noon.Add(3*time.Second + 141592653)
	m.Member = catalog.Member{
		ID: "8e9e05c52164694d", Name: "etcd-0 <&> ü", PeerURLs: []string{"https://10.0.0.1:2380"},
		ClientURLs: []string{"https://10.0.0.1:2379", "https://etcd-0:2379"},
	}
	m.Members = []catalog.Member{m.Member, {ID: "91bc3c398fb3c146", Learner: true}}
	m.RaftIndex, m.RaftTerm = 1<<63+1, 7
	m.RaftIndexMax, m.RevisionMax = 1<<63+3, 1002
	m.HashKV = &catalog.HashKV{Revision: 1000, CompactRevision: -1, Hash: 4294967295}
	m.Seal = seal.Seal{Compression: "zstd", Encryption: "age", Recipients: []string{"age1qqqqqqqqqqqq", "age1zzzzzzzzzzzz"}}
	m.Stored = catalog.Blob{Name: "snapshot.db.zst.age", Size: 1 << 40, SHA256: strings.Repeat("0123456789abcdef", 4)}
	m.Auth, m.Kubernetes, m.KubernetesEncrypted, m.NoQuorum = true, true, true, true
	m.Alarms, m.Diverged = []string{"NOSPACE", "CORRUPT"}, "member b has another hash"
	m.Labels = catalog.Labels{"ticket": "OPS-1 \"quoted\"\n", "by": "me"}
	return m
}

func fullProof() catalog.Proof {
	return catalog.Proof{
		Format: catalog.Proofs.Format, Backup: stored.IDAt(0), Level: catalog.Opened, Verdict: catalog.Passed,
		Finding: "every page is whole", Time: stored.Noon.Add(123456789), Seconds: 1.25, Key: "age1qqqqqqqqqqqq", HashKV: "equal",
		Revision: 1000, Keys: 42, By: "host v0.1.0",
	}
}

func fullTombstone() catalog.Tombstone {
	return catalog.Tombstone{
		Format: catalog.Tombstones.Format, Backup: stored.IDAt(0), Reason: "pruned: no rule keeps it", Time: stored.Noon.Add(1), By: "host, dr v0.1.0",
	}
}

func fullPin() catalog.Pin {
	return catalog.Pin{
		Format: catalog.Pins.Format, Backup: stored.IDAt(0), ID: "0123456789abcdef", Reason: "before \"1.34\"", Time: stored.Noon.Add(1), By: "host, dr v0.1.0",
	}
}

func fullUnpin() catalog.Unpin {
	return catalog.Unpin{
		Format: catalog.Pins.Format, Backup: stored.IDAt(0), Lifts: "0123456789abcdef", Time: stored.Noon.Add(1), By: "host, dr v0.1.0",
	}
}

func fullLogTombstone() log.Tombstone {
	return log.Tombstone{
		Format: log.Tombstones.Format, Cluster: "c", Lineage: stored.LineageID(0), Upto: 25, Reason: "pruned: it is older", Time: stored.Noon.Add(1),
		By: "host, dr v0.1.0",
	}
}

func encodedManifest(tb testing.TB, m catalog.Manifest) []byte {
	tb.Helper()
	p, err := catalog.Manifests.Encode(m)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func encodedProof(tb testing.TB, p catalog.Proof) []byte {
	tb.Helper()
	data, err := catalog.Proofs.Encode(p)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestGolden checks that documents of earlier versions are still read.
func TestGolden(t *testing.T) {
	for name, data := range documents(t) {
		golden.Want(t, filepath.Join("testdata", name), data)
	}
	for name, want := range map[string]any{
		"manifest.json": fullManifest(), "proof.json": fullProof(), "tombstone.json": fullTombstone(), "pin.json": fullPin(),
		"unpin.json": fullUnpin(), "log-tombstone.json": fullLogTombstone(), "suspension.json": stored.FullSuspension(),
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(name, data)
		diff := cmp.Diff(want, got)
		if err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func decode(name string, data []byte) (any, error) {
	switch name {
	case "proof.json":
		return catalog.Proofs.Decode(data)
	case "tombstone.json":
		return catalog.Tombstones.Decode(data)
	case "pin.json":
		return catalog.Pins.Decode(data)
	case "unpin.json":
		return catalog.Unpins.Decode(data)
	case "log-tombstone.json":
		return log.Tombstones.Decode(data)
	case "suspension.json":
		return suspension.Kind.Decode(data)
	}
	return catalog.Manifests.Decode(data)
}

// documents returns one document of each kind.
func documents(tb testing.TB) map[string][]byte {
	all := map[string][]byte{"manifest.json": encodedManifest(tb, fullManifest()), "proof.json": encodedProof(tb, fullProof())}
	add := func(name string, data []byte, err error) {
		all[name] = data
		if err != nil {
			tb.Fatal(err)
		}
	}
	data, err := catalog.Tombstones.Encode(fullTombstone())
	add("tombstone.json", data, err)
	data, err = catalog.Pins.Encode(fullPin())
	add("pin.json", data, err)
	data, err = catalog.Unpins.Encode(fullUnpin())
	add("unpin.json", data, err)
	data, err = log.Tombstones.Encode(fullLogTombstone())
	add("log-tombstone.json", data, err)
	data, err = suspension.Kind.Encode(stored.FullSuspension())
	add("suspension.json", data, err)
	return all
}

func TestDocumentFlippedBytes(t *testing.T) {
	for name, document := range documents(t) {
		for at := range document {
			for _, mask := range stored.Masks() {
				_, err := decode(name, stored.Flip(at, mask)(slices.Clone(document)))
				if !errors.Is(err, catalog.ErrDamaged) {
					t.Errorf("%s: byte %d ^ %#x: %v", name, at, mask, err)
				}
			}
		}
	}
}

func TestDocumentCutOrLonger(t *testing.T) {
	for name, document := range documents(t) {
		for size := range document {
			_, err := decode(name, document[:size])
			if !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("%s: cut to %d bytes: %v", name, size, err)
			}
			_, err = decode(name, document[size+1:])
			if !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("%s: without its first %d bytes: %v", name, size+1, err)
			}
		}
		for _, longer := range [][]byte{
			append(slices.Clone(document), '\n'), slices.Concat(document, document), append([]byte{'\n'}, document...),
		} {
			_, err := decode(name, longer)
			if !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("%s with %d bytes more: %v", name, len(longer)-len(document), err)
			}
		}
	}
}

// TestDocumentRefused checks that documents with a correct digest and wrong content are refused.
func TestDocumentRefused(t *testing.T) {
	for name, document := range documents(t) {
		for what, changed := range map[string][]byte{
			"unknown field":   stored.Rewritten(t, document, "  \"format\": 1,\n", "  \"format\": 1,\n  \"tomorrow\": true,\n"),
			"unknown nested":  stored.Rewritten(t, encodedManifest(t, fullManifest()), "    \"name\": ", "    \"x\": 1,\n    \"name\": "),
			"newer format":    stored.Rewritten(t, document, "\"format\": 1", "\"format\": 2"),
			"no format":       stored.Rewritten(t, document, "  \"format\": 1,\n", ""),
			"no JSON":         stored.Rewritten(t, document, "{\n", "[\n"),
			"another type":    stored.Rewritten(t, document, "\"format\": 1", "\"format\": \"1\""),
			"more than a doc": stored.Framed(strings.TrimSuffix(stored.Body(document), ",\n") + "\n}\n{\n  \"format\": 1,\n"),
			"nothing":         stored.Framed(""),
			"empty":           stored.Framed("{\n,\n"),
			"null":            stored.Framed("null,\n"),
		} {
			_, err := decode(name, changed)
			if !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	_, err := decode("manifest.json", documents(t)["proof.json"])
	if !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("a proof as a manifest: %v", err)
	}
	_, err = decode("proof.json", documents(t)["manifest.json"])
	if !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("a manifest as a proof: %v", err)
	}
}

func TestProofRefused(t *testing.T) {
	document := encodedProof(t, fullProof())
	for what, changed := range map[string][]byte{
		"level": stored.Rewritten(t, document, `"opened"`, `"blessed"`), "verdict": stored.Rewritten(t, document, `"passed"`, `"maybe"`),
	} {
		_, err := catalog.Proofs.Decode(changed)
		if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), what) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	for _, v := range []catalog.Verdict{catalog.Passed, catalog.Failed, catalog.NotRun} {
		p := fullProof()
		p.Verdict = v
		got, err := catalog.Proofs.Decode(encodedProof(t, p))
		if err != nil || got != p {
			t.Errorf("%s: %+v, %v", v, got, err)
		}
	}
}

// TestManifestInvalid checks that invalid manifests are neither written nor accepted.
func TestManifestInvalid(t *testing.T) {
	for what, spoil := range map[string]func(m *catalog.Manifest){
		"no id":                  func(m *catalog.Manifest) { m.ID = "" },
		"odd id":                 func(m *catalog.Manifest) { m.ID = "../x" },
		"odd cluster":            func(m *catalog.Manifest) { m.Cluster = ".." },
		"no cluster":             func(m *catalog.Manifest) { m.Cluster = "" },
		"revision 0":             func(m *catalog.Manifest) { m.Revision = 0 },
		"revisionMax below":      func(m *catalog.Manifest) { m.RevisionMax = m.Revision - 1 },
		"raftIndexMax below":     func(m *catalog.Manifest) { m.RaftIndexMax = m.RaftIndex - 1 },
		"no start":               func(m *catalog.Manifest) { m.Started = time.Time{} },
		"end before the start":   func(m *catalog.Manifest) { m.Finished = m.Started.Add(-1) },
		"no end":                 func(m *catalog.Manifest) { m.Finished = time.Time{} },
		"plain without size":     func(m *catalog.Manifest) { m.Plain.Size = 0 },
		"plain below zero":       func(m *catalog.Manifest) { m.Plain.Size = -1 },
		"stored without size":    func(m *catalog.Manifest) { m.Stored.Size = 0 },
		"plain without digest":   func(m *catalog.Manifest) { m.Plain.SHA256 = "" },
		"stored, short digest":   func(m *catalog.Manifest) { m.Stored.SHA256 = "abcd" },
		"stored, no hex":         func(m *catalog.Manifest) { m.Stored.SHA256 = strings.Repeat("xy", 32) },
		"other name":             func(m *catalog.Manifest) { m.Stored.Name = "snapshot.db" },
		"name of another folder": func(m *catalog.Manifest) { m.Stored.Name = "../x/snapshot.db.zst.age" },
		"name of another seal":   func(m *catalog.Manifest) { m.Stored.Name = "snapshot.db.zst" },
		"unknown compression":    func(m *catalog.Manifest) { m.Seal.Compression = "lz4" },
		"a member's name":        func(m *catalog.Manifest) { m.Members[0].Name = "ev\x1b[2Jil" },
		"a label":                func(m *catalog.Manifest) { m.Labels = catalog.Labels{"why": "\x1b]0;owned\a"} },
		"unknown encryption":     func(m *catalog.Manifest) { m.Seal.Encryption = "rot13" },
	} {
		m := fullManifest()
		spoil(&m)
		_, err := catalog.Manifests.Encode(m)
		if err == nil || m.Validate() == nil {
			t.Errorf("%s: it can be written", what)
		}
	}
	good := encodedManifest(t, fullManifest())
	for old, new := range map[string]string{
		`"revision": 1000,` + "\n  \"raftIndex\"": `"revision": 0,` + "\n  \"raftIndex\"",
		`"cluster": "prod-eu.1"`:                  `"cluster": ".."`,
		`snapshot.db.zst.age`:                     `../snapshot.db.zst.age`,
	} {
		_, err := catalog.Manifests.Decode(stored.Rewritten(t, good, old, new))
		if !errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("%s: %v", new, err)
		}
	}
}

func FuzzDecodeManifest(f *testing.F) {
	small := stored.ManifestOf(stored.Content, stored.Noon)
	small.Format, small.ID, small.Cluster, small.Stored, small.Seal = 1, stored.IDAt(1), "c", small.Plain, seal.Recipients{}.Seal()
	small.Stored.Name = stored.PlainName
	for _, m := range []catalog.Manifest{fullManifest(), small} {
		document := encodedManifest(f, m)
		f.Add(document)
		f.Add([]byte(stored.Body(document)))
		f.Add(bytes.ReplaceAll([]byte(stored.Body(document)), []byte("Z\""), []byte("+00:00\"")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		stored.Fuzzed(t, data, catalog.Manifests.Decode, catalog.Manifests.Encode)
	})
}

func FuzzDecodeProof(f *testing.F) {
	for _, p := range []catalog.Proof{fullProof(), {Format: 1, Level: catalog.Stored, Verdict: catalog.NotRun}} {
		document := encodedProof(f, p)
		f.Add(document)
		f.Add([]byte(stored.Body(document)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		stored.Fuzzed(t, data, catalog.Proofs.Decode, catalog.Proofs.Encode)
	})
}

func TestLevels(t *testing.T) {
	for rank, level := range catalog.Levels {
		got, err := catalog.ParseLevel(string(level))
		if got != level || err != nil || level.Rank() != rank {
			t.Errorf("%s: %s, %v, rank %d", level, got, err, level.Rank())
		}
	}
	for _, text := range []string{"", "Stored", "stored ", "proven"} {
		got, err := catalog.ParseLevel(text)
		if err == nil || got != "" || catalog.Level(text).Rank() != -1 {
			t.Errorf("%q is level %q", text, got)
		}
	}
}
