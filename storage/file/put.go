package file

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (b *tree) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := b.put(ctx, key, r, o)
	if err != nil {
		return storage.Object{}, b.failed("put", key, err)
	}
	return obj, nil
}

func (b *tree) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if err := check(ctx, key); err != nil {
		return storage.Object{}, err
	}
	if !o.RetainUntil.IsZero() {
		return storage.Object{}, fmt.Errorf("%w: a directory has no locks", storage.ErrUnsupported)
	}
	temp, f, err := b.createTemp(key, o.IfAbsent)
	if err != nil {
		return storage.Object{}, denied(err)
	}
	info, err := b.write(ctx, temp, f, r)
	if err == nil {
		err = denied(b.commit(ctx, temp, key, o.IfAbsent))
	}
	b.discard(temp, err != nil)
	if err != nil {
		return storage.Object{}, err
	}
	if err := b.syncUp(path.Dir(key)); err != nil {
		return storage.Object{}, denied(err)
	}
	return object(key, info), nil
}

// createTemp makes the temporary file of a Put. A Delete may prune the directory between its creation and the file's,
// hence more than one try.
func (b *tree) createTemp(key string, ifAbsent bool) (name string, f *os.File, err error) {
	for range 100 {
		if err := b.vacant(key, ifAbsent); err != nil {
			return "", nil, err
		}
		name = tempName(key)
		err = b.makeDirs(path.Dir(key))
		if err == nil {
			f, err = b.createFile(name)
		}
		if err == nil {
			return name, f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	b.prune(path.Dir(key))
	return "", nil, err
}

func (b *tree) createFile(name string) (*os.File, error) {
	o, err := b.owner()
	if err != nil {
		return nil, err
	}
	return b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, o.fileMode())
}

// tempName carries the key's last element for Leftovers, which is asked for prefixes of keys.
func tempName(key string) string {
	var random [8]byte
	rand.Read(random[:]) // never fails
	return path.Join(path.Dir(key), tempPrefix+hex.EncodeToString(random[:])+"-"+path.Base(key))
}

// vacant tells early what would fail late: that key is taken, by an object or by something that is none.
func (b *tree) vacant(key string, ifAbsent bool) error {
	info, err := b.lstat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: an object stands where a directory is needed: %w", storage.ErrUnsupported, err)
	case err != nil:
		return err
	case info.Mode().IsRegular() && ifAbsent:
		return storage.ErrExist
	case info.Mode().IsRegular():
		return nil
	case info.IsDir() && b.unlink(key, unix.AT_REMOVEDIR) == nil: // left empty by a Delete that was killed
		return nil
	case info.IsDir():
		return fmt.Errorf("%w: a directory with objects stands there", storage.ErrUnsupported)
	default:
		return fmt.Errorf("%w: something that is no regular file stands there", storage.ErrUnsupported)
	}
}

// write fills the temporary file, stamps and syncs it.
func (b *tree) write(ctx context.Context, temp string, f *os.File, r io.Reader) (fs.FileInfo, error) {
	defer f.Close() // the error that matters is Sync's
	if err := fill(ctx, f, r); err != nil {
		return nil, err
	}
	if err := b.root.Chtimes(temp, time.Time{}, b.stamp()); err != nil {
		return nil, denied(err)
	}
	if err := b.share(f, false); err != nil { // last: the file may be another user's from here on
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, denied(err)
	}
	return f.Stat()
}

// fill copies until r ends with io.EOF itself: an error that merely wraps it is a veto.
func fill(ctx context.Context, f *os.File, r io.Reader) error {
	buf := make([]byte, 128<<10)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, rerr := r.Read(buf)
		if _, err := f.Write(buf[:n]); err != nil {
			return denied(err)
		}
		if rerr == io.EOF {
			return nil
		}
		if rerr != nil {
			return fmt.Errorf("read what to store: %w", rerr)
		}
	}
}

// commit gives the temporary file the name of key. Link, unlike Rename, fails where the name is taken: that decides
// between Puts that race.
func (b *tree) commit(ctx context.Context, temp, key string, ifAbsent bool) error {
	b.swap.Lock()
	defer b.swap.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if !ifAbsent {
		return b.root.Rename(temp, key)
	}
	err := b.root.Link(temp, key)
	switch {
	case errors.Is(err, fs.ErrExist):
		if b.same(temp, key) { // over NFS an answer may be lost, and the repetition meets its own link
			return nil
		}
		if taken := b.vacant(key, true); taken != nil {
			return taken
		}
		return storage.ErrExist // and deleted since
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: the file system has no hard links: %w", storage.ErrUnsupported, err)
	}
	return err
}

// same reports whether both names are there and of one file.
func (b *tree) same(one, other string) bool {
	a, errA := b.lstat(one)
	z, errB := b.lstat(other)
	return errA == nil && errB == nil && os.SameFile(a, z)
}

// discard removes what a Put leaves: the temporary name always, directories only if the Put has failed.
func (b *tree) discard(temp string, failed bool) {
	// Nothing can be done about an error here; Leftovers will show the file.
	_ = b.unlink(temp, 0)
	if failed {
		b.prune(path.Dir(temp))
	}
}
