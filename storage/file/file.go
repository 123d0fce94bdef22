// Package file stores objects in a directory. Open and Create return a storage.Bucket.
//
// A key is a path below the directory, and an object is a plain file, so that cp and cat can read everything when
// nothing else works. Three things follow:
//
//   - "a" and "a/b" cannot both be objects: the second Put fails with storage.ErrUnsupported.
//   - An element of a key may have at most 230 bytes and not start with ".dr-tmp-", the name of unfinished files: such
//     a key fails with storage.ErrKey.
//   - Only regular files are objects. Symbolic links, sockets and the like are never shown, followed or replaced.
//
// New files and directories get the owner and group of the directory, and the group's rights if the directory excludes
// all other users or has the setgid bit, so that several users can share it by a group. No other user ever gets any
// rights.
//
// A replaced object is gone: each key has one version. Deleting a Version while the same key is being replaced is safe
// only within one Bucket, since POSIX cannot unlink by inode.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/storage"
)

// tree is the directory that was at a path when it was opened.
type tree struct {
	dir  string
	root *os.Root // every access goes through it: no link and no ".." leads out of the directory

	stamps sync.Mutex
	last   time.Time // the newest stamp, see stamp; guarded by stamps

	swap sync.Mutex // held while a key changes, so that Delete removes the version that it has checked
}

func (b *tree) Stat(ctx context.Context, key string) (storage.Object, error) {
	info, err := b.stat(ctx, key)
	if err != nil {
		return storage.Object{}, b.failed("stat", key, err)
	}
	return object(key, info), nil
}

func (b *tree) stat(ctx context.Context, key string) (fs.FileInfo, error) {
	err := check(ctx, key)
	if err != nil {
		return nil, err
	}
	info, err := b.lstat(key)
	if missing(err) || err == nil && !info.Mode().IsRegular() {
		return nil, storage.ErrNotExist
	}
	return info, denied(err)
}

func (b *tree) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := b.remove(ctx, key, o.Version)
	if err == nil || errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	return b.failed("delete", key, err)
}

func (b *tree) remove(ctx context.Context, key, wanted string) error {
	b.swap.Lock()
	defer b.swap.Unlock()
	info, err := b.stat(ctx, key)
	if err != nil {
		return err
	}
	if wanted != "" && wanted != version(info) {
		return nil
	}
	err = b.unlink(key, 0)
	if err != nil && !missing(err) {
		return denied(err)
	}
	return denied(b.syncUp(b.prune(path.Dir(key))))
}

// unlink removes a file (flags 0) or an empty directory (unix.AT_REMOVEDIR), and never the other kind. Root.Remove
// removes either: when it prunes a directory, it could remove a file that a Put has just created under that name.
func (b *tree) unlink(name string, flags int) error {
	parent, err := b.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close() // opened for reading: closing it loses nothing
	err = unix.Unlinkat(int(parent.Fd()), path.Base(name), flags)
	if err != nil {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// prune removes dir and its parents as long as they are empty, and returns the first one that stays.
func (b *tree) prune(dir string) string {
	for dir != "." {
		err := b.unlink(dir, unix.AT_REMOVEDIR)
		if err != nil && !missing(err) {
			break
		}
		dir = path.Dir(dir)
	}
	return dir
}

// syncUp makes dir and all its parents durable, up to the root of the Bucket. Another Put may have created a parent and
// not reached its own syncUp yet, so it is not enough to sync the directories that this Put has created.
func (b *tree) syncUp(dir string) error {
	for {
		err := b.sync(dir)
		if err != nil && !missing(err) { // a Delete may have pruned it
			return err
		}
		if dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

func (b *tree) sync(dir string) error {
	d, err := b.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lstat follows no link, in any element of the path: a name that List omits is missing for the other methods too.
func (b *tree) lstat(name string) (fs.FileInfo, error) {
	for i, c := range []byte(name) {
		if c != '/' {
			continue
		}
		info, err := b.root.Lstat(name[:i])
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, &fs.PathError{Op: "lstat", Path: name[:i], Err: syscall.ENOTDIR}
		}
	}
	return b.root.Lstat(name)
}

const (
	tempPrefix = ".dr-tmp-"
	// maxElement leaves room in a file name's 255 bytes for the prefix that a temporary file adds.
	maxElement = 255 - len(tempPrefix) - 16 - len("-")
)

// check returns an error if ctx has ended or key is invalid. The methods that take a key call it first.
func check(ctx context.Context, key string) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	return validKey(key)
}

func validKey(key string) error {
	err := storage.ValidKey(key)
	if err != nil {
		return err
	}
	for element := range strings.SplitSeq(key, "/") {
		if strings.HasPrefix(element, tempPrefix) {
			return fmt.Errorf("%w: %q is the name of an unfinished file", storage.ErrKey, element)
		}
		if len(element) > maxElement {
			return fmt.Errorf("%w: an element has %d bytes, a directory allows %d", storage.ErrKey, len(element), maxElement)
		}
	}
	return nil
}

func object(key string, info fs.FileInfo) storage.Object {
	return storage.Object{Key: key, Size: info.Size(), Version: version(info), ModTime: info.ModTime().UTC()}
}

// version returns an Object.Version, which differs for each content of a key: a replacement is written while the old file
// exists, so it has another inode, and a later file that reuses the inode has a later stamp.
func version(info fs.FileInfo) string {
	var inode uint64
	sys, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		inode = sys.Ino
	}
	return fmt.Sprintf("%x-%x-%x", inode, info.ModTime().UnixNano(), info.Size())
}

// stamp returns the current time, and never the same time twice. The kernel's own stamps stay the same for some
// milliseconds, long enough to write a file, replace it and write another one in the same inode.
func (b *tree) stamp() time.Time {
	b.stamps.Lock()
	defer b.stamps.Unlock()
	now := time.Now().Round(0)
	if !now.After(b.last) {
		now = b.last.Add(1)
	}
	b.last = now
	return now
}

func (b *tree) failed(verb, key string, err error) error {
	return fmt.Errorf("%s %q in directory %s: %w", verb, key, b.dir, err)
}

// missing reports whether err means that a name does not exist. ENOTDIR is the error for "a/b" where "a" is a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// denied adds storage.ErrDenied to a file system's error about rights. The error of a Put's reader must not pass
// through it: it may concern other files.
func denied(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", storage.ErrDenied, err)
	}
	return err
}

// unreadable is like denied, but for errors of a read. It also adds storage.ErrUnreadable to errors that the disk returns
// in every try.
func unreadable(err error) error {
	for _, broken := range brokenDisk {
		if errors.Is(err, broken) {
			return fmt.Errorf("%w: check the disk: %w", storage.ErrUnreadable, err)
		}
	}
	return denied(err)
}
