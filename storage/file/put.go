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
	err := check(ctx, key)
	if err != nil {
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
		err = denied(b.commit(ctx, temp, key, o))
	}
	b.discard(temp, err != nil)
	if err != nil {
		return storage.Object{}, err
	}
	err = b.syncUp(path.Dir(key))
	if err != nil {
		return storage.Object{}, denied(err)
	}
	return object(key, info), nil
}

// createTemp creates the temporary file of a Put. It retries, because a Delete may prune the new directory before the
// file is in it.
func (b *tree) createTemp(key string, ifAbsent bool) (name string, f *os.File, err error) {
	for range 100 {
		err = b.checkVacant(key, ifAbsent)
		if err != nil {
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

// tempName includes the key's last element, because Leftovers selects keys by a prefix.
func tempName(key string) string {
	var random [8]byte
	rand.Read(random[:]) // never fails
	return path.Join(path.Dir(key), tempPrefix+hex.EncodeToString(random[:])+"-"+path.Base(key))
}

// checkVacant returns the error with which commit would fail later: the key is taken by an object or by something else.
func (b *tree) checkVacant(key string, ifAbsent bool) error {
	info, err := b.lstat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: an object exists where a directory is needed: %w", storage.ErrUnsupported, err)
	case err != nil:
		return err
	case info.Mode().IsRegular() && ifAbsent:
		return storage.ErrExist
	case info.Mode().IsRegular():
		return nil
	case info.IsDir() && b.unlink(key, unix.AT_REMOVEDIR) == nil: // left empty by a killed Delete
		return nil
	case info.IsDir():
		return fmt.Errorf("%w: the name belongs to a directory with objects", storage.ErrUnsupported)
	default:
		return fmt.Errorf("%w: the name belongs to something other than a regular file", storage.ErrUnsupported)
	}
}

// write fills the temporary file, sets its stamp and syncs it.
func (b *tree) write(ctx context.Context, temp string, f *os.File, r io.Reader) (fs.FileInfo, error) {
	defer f.Close() // Sync's error is the one that matters
	err := fill(ctx, f, r)
	if err != nil {
		return nil, err
	}
	err = b.root.Chtimes(temp, time.Time{}, b.stamp())
	if err != nil {
		return nil, denied(err)
	}
	err = b.share(f, false) // after the other changes, because the file may then belong to another user
	if err != nil {
		return nil, err
	}
	err = f.Sync()
	if err != nil {
		return nil, denied(err)
	}
	return f.Stat()
}

// fill copies until r returns io.EOF itself. An error that only wraps io.EOF makes the Put fail.
func fill(ctx context.Context, f *os.File, r io.Reader) error {
	buf := make([]byte, 128<<10)
	for {
		err := ctx.Err()
		if err != nil {
			return err
		}
		n, rerr := r.Read(buf)
		_, err = f.Write(buf[:n])
		if err != nil {
			return denied(err)
		}
		if rerr == io.EOF {
			return nil
		}
		if rerr != nil {
			return fmt.Errorf("read the content to store: %w", rerr)
		}
	}
}

// commit gives the temporary file the name key, if the condition of o holds.
func (b *tree) commit(ctx context.Context, temp, key string, o storage.PutOptions) error {
	b.swap.Lock()
	defer b.swap.Unlock()
	err := ctx.Err()
	if err != nil {
		return err
	}
	switch {
	case o.IfAbsent:
		return b.linkNew(temp, key)
	case o.IfVersion != "":
		return b.replaceVersion(temp, key, o.IfVersion)
	}
	return b.root.Rename(temp, key)
}

// replaceVersion renames the temporary file to key if key is the version wanted. It locks the file that it replaces:
// of several processes that replace one version, one gets the lock, and the others find another file under the name
// afterwards. The kernel releases the lock of a process that dies. A Put without IfVersion and a Delete in another
// process do not respect the lock.
func (b *tree) replaceVersion(temp, key, wanted string) error {
	f, err := b.openToLock(key)
	if missing(err) {
		return storage.ErrChanged
	}
	if err != nil {
		return err
	}
	defer f.Close() // releases the lock, and keeps the inode from being reused until then
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if version(info) != wanted {
		return storage.ErrChanged
	}
	err = lock(f)
	if err != nil {
		return err
	}
	now, err := b.lstat(key)
	if missing(err) || err == nil && !os.SameFile(info, now) {
		return storage.ErrChanged
	}
	if err != nil {
		return err
	}
	return b.root.Rename(temp, key)
}

// lock locks f until it is closed. It returns ErrChanged if another writer holds the lock: that writer is replacing f.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return storage.ErrChanged
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, unix.ENOLCK):
		return fmt.Errorf("%w: the file system cannot lock files: %w", storage.ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("lock the file to replace: %w", err)
	}
	return nil
}

// openToLock opens key for writing if possible: NFS locks a file exclusively only then.
func (b *tree) openToLock(key string) (*os.File, error) {
	info, err := b.lstat(key)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a FIFO would block
		return nil, fs.ErrNotExist
	}
	f, err := b.root.OpenFile(key, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		return b.root.Open(key)
	}
	return f, err
}

// linkNew links the temporary file to key. Unlike Rename, Link fails if the name is taken, so that only one of several
// concurrent Puts succeeds.
func (b *tree) linkNew(temp, key string) error {
	err := b.root.Link(temp, key)
	switch {
	case errors.Is(err, fs.ErrExist):
		if b.sameFile(temp, key) { // over NFS a repeated request may meet its own link after a lost answer
			return nil
		}
		taken := b.checkVacant(key, true)
		if taken != nil {
			return taken
		}
		return storage.ErrExist // it was deleted after the Link
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: the file system has no hard links: %w", storage.ErrUnsupported, err)
	}
	return err
}

// sameFile reports whether both names exist and are the same file.
func (b *tree) sameFile(one, other string) bool {
	a, errA := b.lstat(one)
	z, errB := b.lstat(other)
	return errA == nil && errB == nil && os.SameFile(a, z)
}

// discard removes the temporary name, and after a failed Put also the empty directories.
func (b *tree) discard(temp string, failed bool) {
	// An error has no consequence here: Leftovers will yield the file.
	_ = b.unlink(temp, 0)
	if failed {
		b.prune(path.Dir(temp))
	}
}
