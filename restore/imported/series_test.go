package imported_test

import (
	"archive/zip"
	"bytes"
	"compress/lzw"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// compressed returns data after a writer that make makes has compressed it.
func compressed(t *testing.T, data []byte, make func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := make(&b)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func lzwOf(w io.Writer) (io.WriteCloser, error) { return lzw.NewWriter(w, lzw.LSB, 8), nil }

func zlibOf(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil }

// archived returns a zip archive with a folder and these files in it.
func archived(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	_, err := w.Create("backup/")
	for name, data := range files {
		entry, createErr := w.Create("backup/" + name)
		err = errors.Join(err, createErr)
		if createErr == nil {
			_, writeErr := entry.Write(data)
			err = errors.Join(err, writeErr)
		}
	}
	err = errors.Join(err, w.Close())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// snapshots are snapshots under the names of several tools, with other files between them. Those of which want is "" are stored.
func snapshots(t *testing.T) (files map[string][]byte, want map[string]imported.State) {
	t.Helper()
	whole := withDigest(plainDatabase(t))
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/3] ^= 1
	files = map[string][]byte{
		"etcdctl.db":                                          whole,
		"k3s/etcd-snapshot-n1-1772600767":                     whole,
		"k3s/etcd-snapshot-n1-1772600768.zip":                 archived(t, map[string][]byte{"snapshot": whole}),
		"k3s/etcd-snapshot-n1-1772600769.zip":                 archived(t, map[string][]byte{"one": whole, "two": whole}),
		"k3s/prod-2026030405":                                 whole, // a date, and not a number of seconds
		"k3s/.metadata/etcd-snapshot-n1-1772600767":           []byte("{}"),
		"rke/2026-03-04T05:06:07Z_etcd":                       whole,
		"rke/2026-03-04T05:06:08Z_etcd.zip":                   archived(t, map[string][]byte{"2026-03-04T05:06:08Z_etcd": whole, "2026-03-04T05:06:08Z_etcd.rkestate": []byte("{}")}),
		"coreos/etcd.backup_v98_2026-03-04-05:06:07":          whole,
		"coreos/3.2.13_0000000000000062_etcd.backup":          whole,
		"garden/v2/Full-00000000-00000098-1772600767":         whole,
		"garden/v2/Full-00000000-00000099-1772600768.gz":      zipped(t, whole),
		"garden/v2/Full-00000000-00000100-1772600769.zlib":    compressed(t, whole, zlibOf),
		"garden/v2/Full-00000000-00000101-1772600770.Z":       compressed(t, whole, lzwOf),
		"garden/v2/Incr-00000102-00000103-1772600771":         []byte("events"),
		"bitnami/db-2026-03-04_05-06":                         whole,
		"bitnami/db-2026-03-04_05-07":                         flipped,
		"bitnami/lost":                                        nil,
		"dr/prod/backups/20260304T050607Z-1/snapshot.db":      whole,
		"garden/v2/Full-00000000-00000102-1772600771.Z.final": compressed(t, whole, lzwOf),
		"zeros.gz":                     zipped(t, make([]byte, 4096)),
		"dr/prod/repository.json":      []byte("{}"),
		"dr/prod/backups-index.zst":    []byte("index"),
		"dr/prod/log/1/0000000001.seg": []byte("segment"),
	}
	want = map[string]imported.State{
		"k3s/etcd-snapshot-n1-1772600769.zip": imported.Failed, "k3s/.metadata/etcd-snapshot-n1-1772600767": imported.Skipped,
		"garden/v2/Incr-00000102-00000103-1772600771": imported.Skipped, "bitnami/db-2026-03-04_05-07": imported.Failed,
		"zeros.gz": imported.Failed, "dr/prod/repository.json": imported.Skipped, "dr/prod/backups-index.zst": imported.Skipped,
		"dr/prod/log/1/0000000001.seg": imported.Skipped,
		"bitnami/lost":                 imported.Skipped, "dr/prod/backups/20260304T050607Z-1/snapshot.db": imported.Skipped,
	}
	return files, want
}

// seriesInto returns a series of sources that stores in one repository.
func seriesInto(c *repository.Cluster, sources []imported.Source) imported.Series {
	return imported.Series{Sources: sources, Into: []*repository.Cluster{c}, Store: store}
}

// store stores a database in repositories.
func store(ctx context.Context, d *imported.Database, lacking []*repository.Cluster) (catalog.ID, error) {
	var to []backup.Store
	for i, c := range lacking {
		to = append(to, backup.Store{Repository: fmt.Sprint("repository ", i), Cluster: c})
	}
	r, err := backup.Import(ctx, backup.Database{Reader: d, Size: d.Size, Manifest: d.Manifest}, to, backup.Request{Grace: time.Hour, Require: backup.All})
	return r.ID, err
}

// wantOutcomes checks the state of each source, where a source that is not in want has the state otherwise.
func wantOutcomes(t *testing.T, outcomes []imported.Outcome, err error, root string, want map[string]imported.State, otherwise imported.State) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		name, relErr := filepath.Rel(root, o.Place)
		state, known := want[name]
		if !known {
			state = otherwise
		}
		if relErr != nil || o.State != state || (o.Backup != "") != (state == imported.Stored || state == imported.Present) {
			t.Errorf("%s is %s (%s), want %s: %v", name, o.State, o.Backup, state, o.Err)
		}
	}
}

// TestSeries imports a folder of snapshots of several tools: a damaged one keeps no other from being stored, and nothing is stored twice.
func TestSeries(t *testing.T) {
	files, want := snapshots(t)
	root := t.TempDir()
	for name, data := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err == nil && strings.HasPrefix(name, "garden/") { // as an archive without times is unpacked
			err = os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sources, err := imported.Files(root)
	if err != nil || len(sources) != len(files) {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	c := stored.OpenCluster(t, mem.New(), "prod")
	s := seriesInto(c, sources)
	s.DryRun = true
	planned := map[string]imported.State{}
	for name, state := range want {
		planned[name] = state
		if state == imported.Failed { // only reading shows that
			planned[name] = imported.Planned
		}
	}
	outcomes, err := s.Run(t.Context())
	wantOutcomes(t, outcomes, err, root, planned, imported.Planned)
	s.DryRun = false
	outcomes, err = s.Run(t.Context())
	wantOutcomes(t, outcomes, err, root, want, imported.Stored)
	err = imported.Summary(outcomes)
	if !errors.Is(err, catalog.ErrDamaged) || !strings.HasPrefix(err.Error(), fmt.Sprintf("3 of %d files", len(files))) {
		t.Errorf("the summary is %v", err)
	}
	wantWritten(t, c, len(files)-len(want))
	outcomes, err = s.Run(t.Context())
	wantOutcomes(t, outcomes, err, root, want, imported.Present)
	wantWritten(t, c, len(files)-len(want))
}

// wantWritten checks the number of backups, and the times of those whose names tell them: the files themselves were written today.
func wantWritten(t *testing.T, c *repository.Cluster, want int) {
	t.Helper()
	cat, err := c.Load(t.Context(), backups.LoadOptions{Imported: true})
	if err != nil || len(cat.Imported) != want {
		t.Errorf("%d backups, %v, want %d", len(cat.Imported), err, want)
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	timeless := []string{"etcdctl.db", "3.2.13_0000000000000062_etcd.backup", "prod-2026030405"}
	for _, b := range cat.Imported {
		named := !slices.Contains(timeless, filepath.Base(b.Origin.File))
		near := b.Origin.Written.Sub(at).Abs() <= time.Minute
		if named != near || !b.Started.Equal(b.Origin.Written) {
			t.Errorf("%s was written at %s, started %s", b.Origin.File, b.Origin.Written, b.Started)
		}
	}
}

// TestFilesNamed names files in several ways.
func TestFilesNamed(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, ".snapshot.db"), []byte("data"), 0o600)
	err = errors.Join(err, os.Symlink(dir, filepath.Join(dir, "folder")), os.Symlink(".snapshot.db", filepath.Join(dir, "latest")))
	if err != nil {
		t.Fatal(err)
	}
	for named, want := range map[string][]string{
		"":              {"it is hidden", "it is not a regular file: name the file itself", "it is not a regular file: name the file itself"},
		"folder":        {"it is hidden", "it is not a regular file: name the file itself", "it is not a regular file: name the file itself"},
		"latest":        {""},
		".snapshot.db":  {""},
		"folder/latest": {""},
	} {
		sources, err := imported.Files(filepath.Join(dir, named))
		var got []string
		for _, s := range sources {
			got = append(got, s.Name.Unusable)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", named, got, err, want)
		}
	}
	for _, nothing := range []string{filepath.Join(dir, "none"), t.TempDir()} {
		_, err := imported.Files(nothing)
		if !errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("%s: %v", nothing, err)
		}
	}
	_, err = imported.Objects(t.Context(), mem.New(), parsed(t, "s3://bucket/typo"))
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("an empty bucket: %v", err)
	}
}

// TestSeriesIntoTwoRepositories stores a file in the repository that lacks it, and once only although it is named twice.
func TestSeriesIntoTwoRepositories(t *testing.T) {
	sources, err := imported.Files(write(t, "snapshot.db", withDigest(plainDatabase(t))))
	if err != nil {
		t.Fatal(err)
	}
	sources = append(sources, sources...)
	a, b := stored.OpenCluster(t, mem.New(), "prod"), stored.OpenCluster(t, mem.New(), "prod")
	for _, into := range [][]*repository.Cluster{{a}, {a, b}, {a, b}} {
		s := seriesInto(a, sources)
		s.Into = into
		outcomes, err := s.Run(t.Context())
		if err != nil || len(outcomes) != 1 || outcomes[0].Backup == "" {
			t.Fatalf("%+v, %v", outcomes, err)
		}
	}
	for _, c := range []*repository.Cluster{a, b} {
		cat, err := c.Load(t.Context(), backups.LoadOptions{Imported: true})
		if err != nil || len(cat.Imported) != 1 {
			t.Errorf("%d backups, %v, want one", len(cat.Imported), err)
		}
	}
}

// TestSeriesEnds checks what ends a series: a repository that does not take a backup, and a store that does not answer.
func TestSeriesEnds(t *testing.T) {
	whole := withDigest(plainDatabase(t))
	from := storagetest.Faulty(mem.New())
	for _, name := range []string{"a", "b", "c"} {
		_, err := from.Put(t.Context(), name, bytes.NewReader(whole), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	sources, err := imported.Objects(t.Context(), from, parsed(t, "s3://bucket"))
	if err != nil {
		t.Fatal(err)
	}
	s := seriesInto(stored.OpenCluster(t, mem.New(), "prod"), sources)
	s.Store = func(context.Context, *imported.Database, []*repository.Cluster) (catalog.ID, error) {
		return "", stored.ErrTest
	}
	for range 2 {
		outcomes, err := s.Run(t.Context())
		if !errors.Is(err, stored.ErrTest) || len(outcomes) != 3 || outcomes[0].State != imported.Failed || outcomes[2].State != imported.Untried {
			t.Errorf("%+v, %v", outcomes, err)
		}
		s.Store = store
		from.On(storagetest.VerbOpen).Fail(stored.ErrTest)
	}
}

// TestObjectIsChanged replaces an object after it was listed.
func TestObjectIsChanged(t *testing.T) {
	from := mem.New()
	put := func(data []byte) {
		t.Helper()
		_, err := from.Put(t.Context(), "latest.db", bytes.NewReader(data), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("old"))
	sources, err := imported.Objects(t.Context(), from, parsed(t, "s3://bucket"))
	if err != nil {
		t.Fatal(err)
	}
	put(withDigest(plainDatabase(t)))
	outcomes, err := seriesInto(stored.OpenCluster(t, mem.New(), "prod"), sources).Run(t.Context())
	if err != nil || outcomes[0].State != imported.Failed || !strings.Contains(outcomes[0].Err.Error(), "changed since it was listed") {
		t.Errorf("%+v, %v", outcomes, err)
	}
}

// TestNamedObjects names one object of a bucket, and the path of a schedule of coreos' operator, with neighbours.
func TestNamedObjects(t *testing.T) {
	b := mem.New()
	for _, key := range []string{
		"etcd.backup", "etcd.backup_v98_2026-03-04-05:06:07", "etcd.backup_v100_2026-03-04-05:07:07", "etcd.backup_v2", "etcd.backup2",
		"etcd.backup_vault_v98_2026-03-04-05:06:07", "etcd.backups/other", "etcd",
	} {
		_, err := b.Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"etcd.backup":  {"etcd.backup", "etcd.backup_v100_2026-03-04-05:07:07", "etcd.backup_v98_2026-03-04-05:06:07"},
		"etcd.backup2": {"etcd.backup2"},
		"etcd.back":    nil,
	} {
		sources, err := imported.Named(t.Context(), b, parsed(t, "s3://bucket?region=eu-central-1"), name)
		var got []string
		for _, s := range sources {
			got = append(got, strings.TrimPrefix(s.Place, "s3://bucket/"))
		}
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestSeriesOfABucket imports objects. It is interrupted in the middle, and continues.
func TestSeriesOfABucket(t *testing.T) {
	const objects = 8
	whole, from := withDigest(plainDatabase(t)), mem.New()
	for i := range objects {
		_, err := from.Put(t.Context(), fmt.Sprintf("old/etcd-snapshot-n1-%d", 1772600767+i), bytes.NewReader(whole), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	sources, err := imported.Objects(t.Context(), from, parsed(t, "s3://old-backups/k3s?region=eu-central-1"))
	if err != nil || len(sources) != objects || sources[0].Place != "s3://old-backups/k3s/old/etcd-snapshot-n1-1772600767" {
		t.Fatalf("%d sources, %v: %+v", len(sources), err, sources[:1])
	}
	c := stored.OpenCluster(t, mem.New(), "prod")
	s := seriesInto(c, sources)
	ctx, cancel := context.WithCancel(t.Context())
	count := 0
	s.Store = func(ctx context.Context, d *imported.Database, lacking []*repository.Cluster) (catalog.ID, error) {
		count++
		if count == objects/2 {
			cancel()
		}
		return store(ctx, d, lacking)
	}
	_, err = s.Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	s.Store = store
	outcomes, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[catalog.ID]bool{}
	var states []imported.State
	for _, o := range outcomes {
		ids[o.Backup] = true
		states = append(states, o.State)
	}
	slices.Sort(states)
	if len(ids) != objects || !slices.Equal(slices.Compact(states), []imported.State{imported.Present, imported.Stored}) {
		t.Errorf("%d backups of %d objects, their states are %q", len(ids), objects, states)
	}
}

// parsed returns the address that a URL is.
func parsed(t *testing.T, text string) address.Address {
	t.Helper()
	at, err := address.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
