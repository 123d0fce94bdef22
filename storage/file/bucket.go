package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Bucket is the directory at a path. It implements storage.Bucket and storage.Sweeper. If a file system is mounted
// there later, the next call uses it.
type Bucket struct {
	dir string

	mu   sync.Mutex
	tree *tree // guarded by mu
}

var (
	_ storage.Bucket  = (*Bucket)(nil)
	_ storage.Sweeper = (*Bucket)(nil)
)

// Create opens the directory dir. If it is missing, Create creates it durably with rights for the owner only.
func Create(dir string) (*Bucket, error) {
	err := makeDir(filepath.Clean(dir))
	if err != nil {
		return nil, fmt.Errorf("create directory %s: %w", dir, denied(err))
	}
	return Open(dir)
}

// Open returns the directory dir as a Bucket. If it is missing, the error matches fs.ErrNotExist: a reader must not
// create directories because of a typing error in a path.
func Open(dir string) (*Bucket, error) {
	t, err := openTree(dir)
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", dir, denied(err))
	}
	return &Bucket{dir: dir, tree: t}, nil
}

func openTree(dir string) (*tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tree{dir: dir, root: root}, nil
}

// makeDir is os.MkdirAll that also syncs the parents.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
		err := makeDir(filepath.Dir(dir))
		if err != nil {
			return err
		}
		return makeDir(dir)
	case err != nil:
		return err
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// current returns the directory that is at the path now.
func (b *Bucket) current() (*tree, error) {
	found, err := os.Stat(b.dir)
	if err != nil {
		return nil, b.openError(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	opened, err := b.tree.root.Stat(".")
	if err == nil && os.SameFile(opened, found) {
		return b.tree, nil
	}
	t, err := openTree(b.dir)
	if err != nil {
		return nil, b.openError(err)
	}
	if t.isEmpty() && !b.tree.isEmpty() {
		return nil, errors.Join(fmt.Errorf("%w: directory %s is empty but had content before: mount its file system, or restart dr to start over in the empty directory",
			storage.ErrNoBucket, b.dir), t.root.Close())
	}
	b.tree = t // the old one is closed when the last call that uses it has returned
	return t, nil
}

// openError returns the error for a directory that cannot be opened.
func (b *Bucket) openError(err error) error {
	if missing(err) {
		return fmt.Errorf("%w: directory %s is missing: mount its file system: %w", storage.ErrNoBucket, b.dir, err)
	}
	return fmt.Errorf("open directory %s: %w", b.dir, denied(err))
}

// isEmpty reports whether the directory is readable and empty.
func (b *tree) isEmpty() bool {
	d, err := b.root.Open(".")
	if err != nil {
		return false
	}
	defer d.Close()
	_, err = d.Readdirnames(1)
	return err == io.EOF
}

// Put implements storage.Bucket. It writes a temporary file next to the object's path and renames it when it is
// complete and synced. If syncing the directory fails after that, Put returns an error although the object exists; a
// power failure may remove it.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	t, err := b.current()
	if err != nil {
		return storage.Object{}, fmt.Errorf("put %q: %w", key, err)
	}
	return t.Put(ctx, key, r, o)
}

// Open implements storage.Bucket. The stream keeps reading the opened file even if the key is replaced or deleted.
func (b *Bucket) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	t, err := b.current()
	if err != nil {
		return nil, storage.Object{}, fmt.Errorf("open %q: %w", key, err)
	}
	return t.Open(ctx, key, o)
}

// Stat implements storage.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	t, err := b.current()
	if err != nil {
		return storage.Object{}, fmt.Errorf("stat %q: %w", key, err)
	}
	return t.Stat(ctx, key)
}

// List implements storage.Bucket. It needs memory for the names in one directory and its parents at a time. An
// unreadable directory causes a storage.UnlistedError.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return b.listed("list", o.Prefix, func(t *tree) iter.Seq2[storage.Object, error] { return t.List(ctx, o) })
}

// Leftovers implements storage.Sweeper. A killed Put leaves one temporary file.
func (b *Bucket) Leftovers(ctx context.Context, prefix string) iter.Seq2[storage.Object, error] {
	return b.listed("list", prefix, func(t *tree) iter.Seq2[storage.Object, error] { return t.Leftovers(ctx, prefix) })
}

func (b *Bucket) listed(
	verb, prefix string, objects func(*tree) iter.Seq2[storage.Object, error],
) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		t, err := b.current()
		if err != nil {
			yield(storage.Object{}, fmt.Errorf("%s %q: %w", verb, prefix, err))
			return
		}
		objects(t)(yield)
	}
}

// Delete implements storage.Bucket. It also removes parent directories that become empty.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	t, err := b.current()
	if err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return t.Delete(ctx, key, o)
}

// Sweep implements storage.Sweeper.
func (b *Bucket) Sweep(ctx context.Context, piece storage.Object) error {
	t, err := b.current()
	if err != nil {
		return fmt.Errorf("sweep %q: %w", piece.Key, err)
	}
	return t.Sweep(ctx, piece)
}
