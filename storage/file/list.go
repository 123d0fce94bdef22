package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (b *tree) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		w := walk{ctx: ctx, b: b, prefix: o.Prefix, yield: yield}
		w.enter = func(dir string) bool { return dir > o.After || strings.HasPrefix(o.After, dir) }
		w.show = func(key string) bool {
			return strings.HasPrefix(key, o.Prefix) && key > o.After && validKey(key) == nil
		}
		w.start()
	}
}

func (b *tree) Leftovers(ctx context.Context, prefix string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		w := walk{ctx: ctx, b: b, prefix: prefix, yield: yield}
		w.enter = func(string) bool { return true }
		w.show = func(name string) bool {
			key, ok := keyOfTemp(name)
			return ok && strings.HasPrefix(key, prefix)
		}
		w.start()
	}
}

func (b *tree) Sweep(ctx context.Context, piece storage.Object) error {
	err := b.sweep(ctx, piece.Key)
	if err != nil {
		return b.failed("sweep", piece.Key, err)
	}
	return nil
}

func (b *tree) sweep(ctx context.Context, name string) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	_, ok := keyOfTemp(name)
	if !ok || storage.ValidKey(name) != nil {
		return fmt.Errorf("%w: not an unfinished file", storage.ErrKey)
	}
	_, err = b.lstat(name)
	if err == nil {
		err = b.unlink(name, 0)
	}
	if err != nil && !missing(err) {
		return denied(err)
	}
	b.prune(path.Dir(name))
	return nil
}

// keyOfTemp returns the key for which a temporary file was created.
func keyOfTemp(name string) (string, bool) {
	dir, file := path.Split(name)
	rest, ok := strings.CutPrefix(file, tempPrefix)
	_, element, found := strings.Cut(rest, "-")
	return dir + element, ok && found
}

// walk yields the regular files below the directory of prefix, in byte order of their paths.
type walk struct {
	ctx    context.Context
	b      *tree
	prefix string
	enter  func(dir string) bool // reports whether to read a directory; dir ends in "/"
	show   func(name string) bool
	yield  func(storage.Object, error) bool
}

func (w walk) start() {
	dir, _ := path.Split(w.prefix)
	err := w.ctx.Err()
	if err != nil {
		w.yield(storage.Object{}, w.b.failed("list", dir, err))
		return
	}
	if dir != "" && storage.ValidKey(dir+"x") != nil {
		return // no valid key begins with dir
	}
	if dir != "" {
		info, err := w.b.lstat(strings.TrimSuffix(dir, "/"))
		if missing(err) || err == nil && !info.IsDir() {
			return
		}
	}
	w.dir(dir)
}

// dir yields the files in one directory and below. It returns false at the end of the walk.
func (w walk) dir(dir string) bool {
	names, err := w.names(dir)
	if err != nil {
		err = w.b.failed("list", dir, unreadable(err))
		if dir == "" || !storage.Unreadable(err) {
			w.yield(storage.Object{}, err)
			return false
		}
		return w.yield(storage.Object{}, &storage.UnlistedError{Prefix: dir, Err: err})
	}
	for _, name := range names {
		err := w.ctx.Err()
		if err != nil {
			w.yield(storage.Object{}, w.b.failed("list", dir, err))
			return false
		}
		if !w.entry(dir + name) {
			return false
		}
	}
	return true
}

// entry yields a file or, if name ends in "/", the files in that directory and below. It returns false at the end of the
// walk.
func (w walk) entry(name string) bool {
	if strings.HasSuffix(name, "/") {
		related := strings.HasPrefix(name, w.prefix) || strings.HasPrefix(w.prefix, name)
		return !related || !w.enter(name) || w.dir(name)
	}
	if !w.show(name) {
		return true
	}
	info, err := w.b.root.Lstat(name)
	switch {
	case missing(err) || err == nil && !info.Mode().IsRegular(): // deleted or replaced since the directory was read
		return true
	case err != nil:
		w.yield(storage.Object{}, w.b.failed("list", name, denied(err)))
		return false
	}
	return w.yield(object(name, info), nil)
}

// names returns the files and directories in dir, sorted as their keys sort: a directory's name includes its "/",
// because "a-b" and "a.b" sort before "a/b", and "a0" after it.
func (w walk) names(dir string) ([]string, error) {
	entries, err := w.b.entries(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch {
		case e.IsDir():
			names = append(names, e.Name()+"/")
		case e.Type().IsRegular():
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// entries reads one directory. It returns nothing if a Delete has pruned it.
func (b *tree) entries(dir string) ([]fs.DirEntry, error) {
	d, err := b.root.Open(path.Clean(dir))
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if errors.Is(err, syscall.ENOENT) {
		err = nil
	}
	return entries, err
}
