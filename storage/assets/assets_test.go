package assets_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func dir(p string) assets.File {
	return assets.File{Entry: assets.Entry{Path: p, Kind: assets.Directory, Mode: 0o755}}
}

func file(p, content string) assets.File {
	return assets.File{Entry: assets.Entry{Path: p, Kind: assets.Regular, Mode: 0o600, UID: 7, GID: 8, Size: int64(len(content))}, Content: []byte(content)}
}

func link(p, target string) assets.File {
	return assets.File{Entry: assets.Entry{Path: p, Kind: assets.Link, Mode: 0o777}, Target: target}
}

// some are the files of a small node.
func some() []assets.File {
	return []assets.File{dir("/etc"), dir("/etc/pki"), file("/etc/pki/ca.key", "secret"), link("/etc/pki/current", "ca.key"), file("/etc/pki/empty", "")}
}

var paths = []string{"/etc/pki"}

func store(tb testing.TB, c *repository.Cluster, node string, second int, to seal.Recipients) assets.Manifest {
	tb.Helper()
	m, err := c.Assets().Store(tb.Context(), assets.Manifest{Node: node, Time: stored.At(second), Paths: paths}, some(), to)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestAssetsRoundTrip(t *testing.T) {
	keys, to := stored.Pair(t)
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		old, other := store(t, c, "cp-1", 0, to), store(t, c, "cp-2", 5, to)
		newest := store(t, c, "cp-1", 9, to)
		for id, want := range map[assets.ID]assets.Manifest{"": newest, old.ID: old} {
			m, ignored, err := c.Assets().Find(t.Context(), "cp-1", id)
			if err != nil || len(ignored) > 0 || cmp.Diff(want, m) != "" {
				t.Fatalf("version %q: %v, %v\n%s", id, err, ignored, cmp.Diff(want, m))
			}
			files, err := c.Assets().Fetch(t.Context(), m, keys)
			diff := cmp.Diff(some(), files, cmpopts.EquateEmpty())
			if err != nil || diff != "" {
				t.Fatalf("%v\n%s", err, diff)
			}
		}
		versions, err := c.Assets().List(t.Context(), "")
		if err != nil || len(versions) != 3 || versions[0].ID != newest.ID || versions[1].ID != other.ID || versions[2].ID != old.ID {
			t.Errorf("%v, %+v", err, versions)
		}
		_, _, err = c.Assets().Find(t.Context(), "cp-2", old.ID)
		wantText(t, err, "belongs to node cp-1")
		_, _, err = c.Assets().Find(t.Context(), "cp-3", "")
		wantText(t, err, "there are versions of cp-1, cp-2")
	})
}

// TestAround returns the versions between which a moment is.
func TestAround(t *testing.T) {
	c := stored.OpenCluster(t, mem.New(), "c")
	_, to := stored.Pair(t)
	first, second := store(t, c, "n", 10, to).ID, store(t, c, "n", 20, to).ID
	store(t, c, "other", 15, to)
	for at, want := range map[int][]assets.ID{5: {first}, 10: {first, second}, 19: {first, second}, 20: {second}, 50: {second}} {
		around, err := c.Assets().Around(t.Context(), "n", stored.At(at))
		var ids []assets.ID
		for _, m := range around {
			ids = append(ids, m.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("at second %d: %s, %v, want %s", at, ids, err, want)
		}
	}
	_, err := c.Assets().Around(t.Context(), "absent", stored.Noon)
	wantText(t, err, "node absent is not in the repository")
}

func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if !errors.Is(err, catalog.ErrNotFound) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %q", err, text)
	}
}

// TestAssetsHideContents checks that no object contains content or a digest of a single file in the clear.
func TestAssetsHideContents(t *testing.T) {
	b := mem.New()
	_, to := stored.Pair(t)
	store(t, stored.OpenCluster(t, b, "c"), "n", 0, to)
	for key, content := range stored.Contents(t, b) {
		if strings.Contains(content, "secret") || strings.Contains(content, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b") {
			t.Errorf("%s shows the content of a file", key)
		}
	}
}

func TestAssetsNeedRecipients(t *testing.T) {
	b := mem.New()
	_, err := stored.OpenCluster(t, b, "c").Assets().Store(t.Context(), assets.Manifest{Node: "n"}, some(), seal.Recipients{})
	stored.WantError(t, "without recipients", err, assets.ErrNotEncrypted)
	stored.WantNothing(t, "without recipients", b)
}

func TestAssetsDamaged(t *testing.T) {
	keys, to := stored.Pair(t)
	wrong, _ := stored.Pair(t)
	for name, test := range map[string]struct {
		object string
		how    func([]byte) []byte
	}{
		"flipped archive":    {"files.tar.zst.age", stored.Flip(300, 1)},
		"truncated archive":  {"files.tar.zst.age", func(p []byte) []byte { return p[:len(p)-1] }},
		"flipped manifest":   {"manifest.json", stored.Flip(40, 1)},
		"truncated manifest": {"manifest.json", func(p []byte) []byte { return p[:len(p)/2] }},
		"empty manifest":     {"manifest.json", func([]byte) []byte { return nil }},
		"plain":              {"manifest.json", func(p []byte) []byte { return bytes.Replace(p, []byte(`"age"`), []byte(`""`), 1) }},
	} {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		m := store(t, c, "n", 0, to)
		stored.Change(t, b, "c/assets/n/"+string(m.ID)+"/"+test.object, test.how)
		found, _, err := c.Assets().Find(t.Context(), "n", "")
		if err == nil {
			_, err = c.Assets().Fetch(t.Context(), found, keys)
		}
		stored.WantError(t, name, err, catalog.ErrDamaged)
	}
	c := stored.OpenCluster(t, mem.New(), "c")
	_, err := c.Assets().Fetch(t.Context(), store(t, c, "n", 0, to), wrong)
	stored.WantError(t, "wrong key", err, seal.ErrWrongKey)
}

// TestAssetsOtherThanListed checks that an archive with other files than its manifest is refused.
func TestAssetsOtherThanListed(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	keys, to := stored.Pair(t)
	key := c.Assets().ManifestKey(store(t, c, "n", 0, to))
	stored.Change(t, b, key, func(p []byte) []byte { return stored.Rewritten(t, p, `"0600"`, `"0644"`) })
	m, _, err := c.Assets().Find(t.Context(), "n", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Assets().Fetch(t.Context(), m, keys)
	stored.WantError(t, "another mode", err, catalog.ErrDamaged)
}

// TestManifestRefuses checks that no manifest describes a version without encryption, or one that is too large.
func TestManifestRefuses(t *testing.T) {
	_, to := stored.Pair(t)
	good := store(t, stored.OpenCluster(t, mem.New(), "c"), "n", 0, to)
	for name, change := range map[string]func(*assets.Manifest){
		"plain":     func(m *assets.Manifest) { m.Seal, m.Stored.Name = seal.Seal{Compression: "zstd"}, "files.tar.zst" },
		"name":      func(m *assets.Manifest) { m.Stored.Name = "../files.tar.zst.age" },
		"too large": func(m *assets.Manifest) { m.Stored.Size = 1 << 30 },
		"empty":     func(m *assets.Manifest) { m.Stored.Size = 0 },
		"node":      func(m *assets.Manifest) { m.Node = "../n" },
		"id":        func(m *assets.Manifest) { m.ID = ".." },
		"cluster":   func(m *assets.Manifest) { m.Cluster = ".." },
		"files":     func(m *assets.Manifest) { m.Files = nil },
	} {
		m := good
		change(&m)
		_, err := assets.Manifests.Encode(m)
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestAssetsMoved checks that a version is refused below another node or cluster.
func TestAssetsMoved(t *testing.T) {
	b := mem.New()
	_, to := stored.Pair(t)
	m := store(t, stored.OpenCluster(t, b, "c"), "n", 0, to)
	for _, place := range []string{"c/assets/n2/", "c2/assets/n/"} {
		for _, name := range []string{"manifest.json", "files.tar.zst.age"} {
			stored.Put(t, b, place+string(m.ID)+"/"+name, stored.Get(t, b, "c/assets/n/"+string(m.ID)+"/"+name))
		}
		parts := strings.Split(place, "/")
		_, _, err := stored.OpenCluster(t, b, parts[0]).Assets().Find(t.Context(), parts[2], "")
		stored.WantError(t, place, err, catalog.ErrDamaged)
	}
}

// TestAssetsUntrusted checks that a newer version of a foreign signer is skipped, and refused if it is named.
func TestAssetsUntrusted(t *testing.T) {
	b := mem.New()
	_, to := stored.Pair(t)
	owner, foreign := stored.NewSigner(t), stored.NewSigner(t)
	c := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	good := store(t, c, "n", 0, to)
	forged := store(t, stored.OpenWith(t, b, records.Policy{Key: foreign.Key}), "n", 9, to)
	m, ignored, err := c.Assets().Find(t.Context(), "n", "")
	if err != nil || m.ID != good.ID || len(ignored) != 1 || ignored[0].ID != forged.ID {
		t.Errorf("found %s, ignored %v: %v", m.ID, ignored, err)
	}
	_, _, err = c.Assets().Find(t.Context(), "n", forged.ID)
	stored.WantError(t, "forged", err, sign.ErrUntrusted)
}

func TestAssetsStoreFails(t *testing.T) {
	_, to := stored.Pair(t)
	for _, verb := range []storagetest.Verb{storagetest.VerbPut, storagetest.VerbList} {
		b := storagetest.Faulty(mem.New())
		c := stored.OpenWith(t, b, records.Policy{Key: stored.NewSigner(t).Key})
		b.On(verb).Fail(stored.ErrTest)
		_, err := c.Assets().Store(t.Context(), assets.Manifest{Node: "n", Time: stored.Noon, Paths: paths}, some(), to)
		if err == nil {
			_, err = c.Assets().List(t.Context(), "")
		}
		stored.WantError(t, "the store fails", err, stored.ErrTest)
	}
}

// TestPackRefuses checks that neither side accepts files that could be written out of the root, or that exceed the bounds.
func TestPackRefuses(t *testing.T) {
	large := file("/etc/large", "")
	large.Size = assets.MaxBytes + 1
	many := []assets.File{dir("/a")}
	for i := range assets.MaxEntries {
		many = append(many, file("/a/"+strings.Repeat("b", i+1), ""))
	}
	for name, files := range map[string][]assets.File{
		"nothing":           nil,
		"relative":          {file("etc", "")},
		"dot dot":           {dir("/etc"), file("/etc/../x", "")},
		"double":            {file("/x", ""), file("/x", "")},
		"unsorted":          {file("/y", ""), file("/x", "")},
		"below a link":      {link("/etc", "/tmp"), file("/etc/x", "")},
		"below a file":      {file("/etc", ""), file("/etc/x", "")},
		"without directory": {file("/etc/x", "")},
		"link leads out":    {dir("/etc"), link("/etc/x", "../../x")},
		"link out and in":   {link("/x", "../x")},
		"absolute link out": {link("/x", "/../x")},
		"empty link":        {link("/x", "")},
		"mode":              {{Entry: assets.Entry{Path: "/x", Kind: assets.Regular, Mode: 0o10000}}},
		"owner":             {{Entry: assets.Entry{Path: "/x", Kind: assets.Regular, UID: -1}}},
		"kind":              {{Entry: assets.Entry{Path: "/x", Kind: "socket"}}},
		"not UTF-8":         {file("/\xff", "")},
		"size":              {dir("/etc"), large},
		"number":            many,
	} {
		_, err := assets.Pack(files)
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	archive, err := assets.Pack(some())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(archive)
	f.Add(bytes.Replace(archive, []byte("etc/pki/ca.key"), []byte("../../../a.key"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := assets.Unpack(data)
		if err != nil {
			if !errors.Is(err, storage.ErrDamaged) {
				t.Errorf("%v is no damage", err)
			}
			return
		}
		again, err := assets.Pack(files)
		if err != nil {
			t.Fatal(err)
		}
		same, err := assets.Unpack(again)
		if err != nil || cmp.Diff(files, same, cmpopts.EquateEmpty()) != "" {
			t.Errorf("%v\n%s", err, cmp.Diff(files, same, cmpopts.EquateEmpty()))
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	_, to := stored.Pair(f)
	document, err := assets.Manifests.Encode(store(f, stored.OpenCluster(f, mem.New(), "c"), "n", 0, to))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(document)
	f.Add([]byte(stored.Body(document)))
	f.Fuzz(func(t *testing.T, data []byte) {
		stored.Fuzzed(t, data, assets.Manifests.Decode, assets.Manifests.Encode)
	})
}

func TestParseID(t *testing.T) {
	for text, want := range map[string]bool{"20261121T092433Z-3f9a1c02": true, "latest": false, "../20261121T092433Z-3f9a1c02": false} {
		_, err := assets.ParseID(text)
		if (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	if assets.ValidNode("cp-1.example.org") != nil || assets.ValidNode("../x") == nil || assets.ValidNode("") == nil {
		t.Error("names of nodes are not checked")
	}
}

func TestCompare(t *testing.T) {
	version := append(some(), file("/etc/pki/x", "1"))
	node := slices.Clone(version)
	node[0].Mode = 0o700 // of the operating system
	node[1].Mode = 0o700
	node[2].Content, node[2].UID = []byte("Secret"), 0
	node[3].Target = "empty"
	node[4] = dir("/etc/pki/empty")
	node[5] = file("/etc/pki/y", "1")
	var got []string
	for _, d := range assets.Compare(version, node, paths) {
		got = append(got, strings.TrimPrefix(d.Path, "/etc/")+join(d.Changes))
	}
	want := []string{"pki mode", "pki/ca.key content owner", "pki/current target", "pki/empty kind", "pki/x missing", "pki/y added"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func join(changes []assets.Change) (text string) {
	for _, c := range changes {
		text += " " + string(c)
	}
	return text
}

// TestCompareFindsEveryChange checks that only equal files have no difference, and that the two sides mirror each other.
func TestCompareFindsEveryChange(t *testing.T) {
	contents := rapid.MapOf(rapid.SampledFrom([]string{"/p/a", "/p/b", "/p/c"}), rapid.SampledFrom([]string{"", "1", "2"}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := contents.Draw(t, "a"), contents.Draw(t, "b")
		ab, ba := assets.Compare(filesOf(a), filesOf(b), []string{"/p"}), assets.Compare(filesOf(b), filesOf(a), []string{"/p"})
		differ := 0
		for _, p := range []string{"/p/a", "/p/b", "/p/c"} {
			x, inA := a[p]
			y, inB := b[p]
			if inA != inB || x != y {
				differ++
			}
		}
		if len(ab) != differ || len(ba) != differ {
			t.Fatalf("%d and %d differences, want %d", len(ab), len(ba), differ)
		}
		for i := range ab {
			if (ab[i].Version == nil) != (ba[i].Node == nil) || (ab[i].Node == nil) != (ba[i].Version == nil) {
				t.Fatalf("%+v is not the mirror of %+v", ab[i], ba[i])
			}
		}
	})
}

func filesOf(contents map[string]string) (files []assets.File) {
	for p, content := range contents {
		files = append(files, file(p, content))
	}
	return files
}

// TestAssetsAreNotPruned checks that pruning and sweeping leave assets alone, even if they are old.
func TestAssetsAreNotPruned(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	_, to := stored.Pair(t)
	store(t, c, "n", 0, to)
	before := stored.Contents(t, b)
	_, err := c.Prune(t.Context(), repository.Removal{}, repository.PruneOptions{Grace: time.Second, Now: time.Now().Add(1000 * time.Hour)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff(before, stored.Contents(t, b))
	if diff != "" {
		t.Errorf("pruning changed assets:\n%s", diff)
	}
}
