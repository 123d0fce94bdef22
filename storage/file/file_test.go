package file_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

func open(t *testing.T, dir string) *file.Bucket {
	t.Helper()
	b, err := file.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b storage.Bucket, key, content string) storage.Object {
	t.Helper()
	obj, err := b.Put(t.Context(), key, strings.NewReader(content), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Bucket { return open(t, t.TempDir()) },
		storagetest.Options{
			PartSizes:  []int{128 << 10}, // the size of one Read by Put
			NoVersions: true, NoLocks: true, NoNesting: true,
		})
}

func TestOpenCreates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		put(t, open(t, dir), "key", "content")
	}
	wantMode(t, dir, 0o700)
	_, err := file.Create(filepath.Join(dir, "key"))
	if err == nil {
		t.Error("a file was opened as a directory")
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	got := info.Mode().Perm()
	if got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

// TestPlainFiles checks that backups are plain files, which cp and cat can read, and that only their owner may: they contain every Secret.
func TestPlainFiles(t *testing.T) {
	dir := t.TempDir()
	put(t, open(t, dir), "a/b/key", "content")
	p, err := os.ReadFile(filepath.Join(dir, "a", "b", "key"))
	if err != nil || string(p) != "content" {
		t.Errorf("%q, %v", p, err)
	}
	wantMode(t, filepath.Join(dir, "a", "b", "key"), 0o600)
	wantMode(t, filepath.Join(dir, "a", "b"), 0o700)
}

func TestEmptyDirectoriesGo(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "a/b/c/key", "")
	put(t, b, "a/other", "")
	err := b.Delete(t.Context(), "a/b/c/key", storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Put(t.Context(), "x/y/z", io.MultiReader(strings.NewReader("x"), broken{}), storage.PutOptions{})
	if !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	got := entries(dir)
	if !slices.Equal(got, []string{"a", "a/other"}) {
		t.Errorf("the directory contains %q", got)
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// TestEmptyDirectoryIsNoKey checks that a directory left by a killed Delete does not block a key of its name.
func TestEmptyDirectoryIsNoKey(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Stat(t.Context(), "a/b")
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
	put(t, b, "a/b", "content")
}

func TestReservedNames(t *testing.T) {
	b := open(t, t.TempDir())
	for _, key := range []string{".dr-tmp-", "a/.dr-tmp-x", ".dr-tmp-x/a", "a/" + strings.Repeat("x", 231)} {
		_, err := b.Put(t.Context(), key, strings.NewReader(""), storage.PutOptions{})
		_, statErr := b.Stat(t.Context(), key)
		_, _, openErr := b.Open(t.Context(), key, storage.OpenOptions{})
		for _, err := range []error{err, statErr, openErr, b.Delete(t.Context(), key, storage.DeleteOptions{})} {
			if !errors.Is(err, storage.ErrKey) {
				t.Errorf("%q: %v", key, err)
			}
		}
	}
	put(t, b, strings.Repeat("x", 230), "")
	put(t, b, ".dr-tm", "")
}

func TestReaderKeepsOpenedObjects(t *testing.T) {
	b := open(t, t.TempDir())
	put(t, b, "key", "old content")
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Offset: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	put(t, b, "key", "something new")
	p, err := io.ReadAll(r)
	if string(p) != "content" || err != nil {
		t.Errorf("%q, %v", p, err)
	}
}

func TestVersionOutlivesTheBucket(t *testing.T) {
	dir := t.TempDir()
	obj := put(t, open(t, dir), "key", "content")
	got, err := open(t, dir).Stat(t.Context(), "key")
	if err != nil || got != obj {
		t.Errorf("%+v, %v, want %+v", got, err, obj)
	}
}

// TestVersionsDifferWithinOneClockTick checks Versions when the file system reuses the inode of a replaced file. The bubble stops the clock
// that sets the time of each file.
func TestVersionsDifferWithinOneClockTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, seen := open(t, t.TempDir()), map[string]bool{}
		for _, content := range strings.Split("abcdefghijklmnopqrst", "") {
			obj := put(t, b, "key", content)
			if seen[obj.Version] {
				t.Fatalf("version %q was used twice", obj.Version)
			}
			seen[obj.Version] = true
		}
	})
}

// TestCutFile checks that a truncated file does not look like a shorter object.
func TestCutFile(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "key", "0123456789")
	for _, o := range []storage.OpenOptions{{}, {Offset: 2}, {Length: 8}} {
		err := os.WriteFile(filepath.Join(dir, "key"), []byte("0123456789"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := b.Open(t.Context(), "key", o)
		if err != nil {
			t.Fatal(err)
		}
		err = os.Truncate(filepath.Join(dir, "key"), 5)
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if string(p) != "01234"[o.Offset:] || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%+v: %q, %v", o, p, err)
		}
		r.Close()
	}
}

// TestForeignThings checks that links, pipes and directories are not shown, followed, replaced or deleted.
func TestForeignThings(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	err := os.WriteFile(filepath.Join(outside, "file"), []byte("secret"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	put(t, b, "real/key", "content")
	links := map[string]string{
		"out": outside, "outfile": filepath.Join(outside, "file"), "up": "..", "in": "real", "infile": "real/key",
		"nowhere": "nothing", "loop": "loop",
	}
	for name, target := range links {
		err := os.Symlink(target, filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	err = syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	before := append(entries(dir), entries(outside)...)
	for _, key := range []string{
		"out/file", "out/new", "outfile", "up/x", "in/key", "in/new", "infile", "infile/x", "nowhere", "nowhere/x", "loop",
		"loop/x", "pipe", "pipe/x", "real",
	} {
		wantUnreachable(t, b, key)
	}
	for obj, err := range b.List(t.Context(), storage.ListOptions{}) {
		if err != nil || obj.Key != "real/key" {
			t.Errorf("List shows %+v, %v", obj, err)
		}
	}
	for _, prefix := range []string{"out/", "in/", "nowhere/", "pipe/", "../", "real/../"} {
		for obj, err := range b.List(t.Context(), storage.ListOptions{Prefix: prefix}) {
			t.Errorf("List of %q shows %+v, %v", prefix, obj, err)
		}
	}
	after := append(entries(dir), entries(outside)...)
	if !slices.Equal(before, after) {
		t.Errorf("the directory contained %q, and contains %q", before, after)
	}
}

func wantUnreachable(t *testing.T, b *file.Bucket, key string) {
	t.Helper()
	_, err := b.Stat(t.Context(), key)
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("Stat(%q): %v", key, err)
	}
	_, _, err = b.Open(t.Context(), key, storage.OpenOptions{})
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("Open(%q): %v", key, err)
	}
	for _, ifAbsent := range []bool{true, false} {
		_, err := b.Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{IfAbsent: ifAbsent})
		if !errors.Is(err, storage.ErrUnsupported) {
			t.Errorf("Put(%q): %v", key, err)
		}
	}
	err = b.Delete(t.Context(), key, storage.DeleteOptions{})
	if err != nil {
		t.Errorf("Delete(%q): %v", key, err)
	}
}

// TestSweepTakesLeftoversOnly checks that a caller who confuses List and Leftovers loses no objects.
func TestSweepTakesLeftoversOnly(t *testing.T) {
	b := open(t, t.TempDir())
	obj := put(t, b, "a/key", "content")
	for _, key := range []string{obj.Key, "", "../.dr-tmp-0-x", ".dr-tmp-0/x"} {
		err := b.Sweep(t.Context(), storage.Object{Key: key})
		if !errors.Is(err, storage.ErrKey) {
			t.Errorf("Sweep(%q): %v", key, err)
		}
	}
	got, err := b.Stat(t.Context(), obj.Key)
	if got != obj || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestManyPutsAndDeletes runs Put, which creates directories, and Delete, which prunes them, concurrently on two
// Buckets of one directory.
func TestManyPutsAndDeletes(t *testing.T) {
	dir := t.TempDir()
	done := make(chan error, 2)
	for _, key := range []string{"a/b/c/one", "a/b/c/two"} {
		b := open(t, dir)
		go func() {
			for range 200 {
				_, err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{IfAbsent: true})
				err = errors.Join(err, b.Delete(t.Context(), key, storage.DeleteOptions{}))
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	err := errors.Join(<-done, <-done)
	if err != nil {
		t.Fatal(err)
	}
	got := entries(dir)
	if len(got) > 0 {
		t.Errorf("the directory contains %q", got)
	}
}

func FuzzKey(f *testing.F) {
	for _, key := range []string{
		"a", "a/b", "", "/", "..", "a/../b", ".dr-tmp-", "a/.dr-tmp-x/b", "ü/é", "a\x00b", "a b/%2f", "\xff", "a//b", "-",
		strings.Repeat("x", 230), strings.Repeat("x", 231), strings.Repeat("x", 1025), strings.Repeat("x/", 400) + "x",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		dir := t.TempDir()
		b := open(t, dir)
		obj, err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{})
		if errors.Is(err, storage.ErrKey) {
			reserved := strings.HasPrefix(key, ".dr-tmp-") || strings.Contains(key, "/.dr-tmp-")
			long := slices.ContainsFunc(strings.Split(key, "/"), func(e string) bool { return len(e) > 230 })
			if storage.ValidKey(key) == nil && !reserved && !long || len(entries(dir)) > 0 {
				t.Fatalf("%q was refused, and the directory contains %q: %v", key, entries(dir), err)
			}
			return
		}
		if err != nil || storage.ValidKey(key) != nil || obj.Key != key {
			t.Fatalf("Put(%q) = %+v, %v", key, obj, err)
		}
		n := 0
		for listed, err := range b.List(t.Context(), storage.ListOptions{Prefix: key}) {
			n++
			if listed != obj || err != nil {
				t.Fatalf("List = %+v, %v, want %+v", listed, err, obj)
			}
		}
		r, _, err := b.Open(t.Context(), key, storage.OpenOptions{})
		if err != nil || n != 1 {
			t.Fatalf("Open: %v, %d listed", err, n)
		}
		defer r.Close()
		p, err := io.ReadAll(r)
		if string(p) != key || err != nil {
			t.Fatalf("%q, %v", p, err)
		}
		err = b.Delete(t.Context(), key, storage.DeleteOptions{})
		if err != nil || len(entries(dir)) > 0 {
			t.Fatalf("Delete: %v, the directory contains %q", err, entries(dir))
		}
	})
}

// atEOF is a reader that calls do before it returns io.EOF.
type atEOF struct {
	io.Reader
	do func()
}

func (r atEOF) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		r.do()
	}
	return n, err
}

// TestLinkWhoseAnswerIsLost simulates NFS: the server creates the link, its reply is lost, and the repeated request finds the link.
// Put must report success.
func TestLinkWhoseAnswerIsLost(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	link := func() {
		temps, err := filepath.Glob(filepath.Join(dir, ".dr-tmp-*-key"))
		if err == nil && len(temps) == 1 {
			err = os.Link(temps[0], filepath.Join(dir, "key"))
		}
		if err != nil || len(temps) != 1 {
			t.Errorf("temporary files %q: %v", temps, err)
		}
	}
	_, err := b.Put(t.Context(), "key", atEOF{strings.NewReader("content"), link}, storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Errorf("Put: %v", err)
	}
	other := func() {}
	_, err = b.Put(t.Context(), "key", atEOF{strings.NewReader("content"), other}, storage.PutOptions{IfAbsent: true})
	if !errors.Is(err, storage.ErrExist) {
		t.Errorf("another Put: %v", err)
	}
}
