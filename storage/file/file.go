// Package file keeps a storage.Bucket in a directory.
//
// A key is a path below the directory, and an object is a plain file, so that everything can be read with cp and cat
// when nothing else works. Three things follow:
//
//   - "a" and "a/b" cannot both be objects: the second Put fails with storage.ErrUnsupported.
//   - An element of a key may have at most 230 bytes and not start with ".dr-tmp-", the name of unfinished files: such
//     a key fails with storage.ErrKey.
//   - Only regular files are objects. Symbolic links, sockets and the like are never shown, followed or replaced.
//
// What is created takes owner and group of the directory, and the group's rights if the directory keeps all others out or has
// the setgid bit: so several users can share it by a group. Nobody else is ever given a right.
//
// A replaced object is gone: of each key there is one version. Deleting a Version and replacing the same key at the same
// time is safe within one Bucket only, since POSIX cannot unlink by inode.
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

// tree is the directory that stood at a path when it was opened.
type tree struct {
	dir  string
	root *os.Root // every access goes through it: no link and no ".." leads out of the directory

	stamps sync.Mutex
	last   time.Time // the newest stamp, see stamp

	swap sync.Mutex // held while a key changes, so that Delete removes the version it has looked at
}

func (b *tree) Stat(ctx context.Context, key string) (storage.Object, error) {
	info, err := b.stat(ctx, key)
	if err != nil {
		return storage.Object{}, b.failed("stat", key, err)
	}
	return object(key, info), nil
}

func (b *tree) stat(ctx context.Context, key string) (fs.FileInfo, error) {
	if err := check(ctx, key); err != nil {
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
	if err := b.unlink(key, 0); err != nil && !missing(err) {
		return denied(err)
	}
	return denied(b.syncUp(b.prune(path.Dir(key))))
}

// unlink removes a file (flags 0) or an empty directory (unix.AT_REMOVEDIR), and nothing of the other kind. Root.Remove
// takes either: pruning a directory with it could hit a file that a Put has just placed under that name.
func (b *tree) unlink(name string, flags int) error {
	parent, err := b.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close() // opened for reading: nothing to lose
	if err := unix.Unlinkat(int(parent.Fd()), path.Base(name), flags); err != nil {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// prune removes dir and its parents as long as they are empty, and returns the first one that stays.
func (b *tree) prune(dir string) string {
	for dir != "." {
		if err := b.unlink(dir, unix.AT_REMOVEDIR); err != nil && !missing(err) {
			break
		}
		dir = path.Dir(dir)
	}
	return dir
}

// syncUp makes dir and all above it durable, up to the root of the Bucket. Those above may have been created by another
// Put that has not come to its own syncUp yet: to sync only what this one has created would promise too much.
func (b *tree) syncUp(dir string) error {
	for {
		if err := b.sync(dir); err != nil && !missing(err) { // a Delete may have pruned it
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

// lstat follows no link, at the end or on the way: what List does not show, no other verb may reach.
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
	// maxElement leaves room for what a temporary file's name adds to the key's, in the 255 bytes of a file name.
	maxElement = 255 - len(tempPrefix) - 16 - len("-")
)

// check is the first step of every verb.
func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return validKey(key)
}

func validKey(key string) error {
	if err := storage.ValidKey(key); err != nil {
		return err
	}
	for element := range strings.SplitSeq(key, "/") {
		if strings.HasPrefix(element, tempPrefix) {
			return fmt.Errorf("%w: %q is the name of an unfinished file", storage.ErrKey, element)
		}
		if len(element) > maxElement {
			return fmt.Errorf("%w: an element has %d bytes, a directory takes %d", storage.ErrKey, len(element), maxElement)
		}
	}
	return nil
}

func object(key string, info fs.FileInfo) storage.Object {
	return storage.Object{Key: key, Size: info.Size(), Version: version(info), ModTime: info.ModTime().UTC()}
}

// version names one content of one key. A replacement is written while the file before it exists, so it has another
// inode; where a later one inherits the inode, it has a later stamp.
func version(info fs.FileInfo) string {
	var inode uint64
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = sys.Ino
	}
	return fmt.Sprintf("%x-%x-%x", inode, info.ModTime().UnixNano(), info.Size())
}

// stamp is the time, and never the same twice. The kernel's own stamps stand still for milliseconds, time enough to
// write, replace and write a file again in the same inode.
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

// missing says that there is nothing under a name. ENOTDIR is the answer for "a/b" where "a" is a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// denied adds storage.ErrDenied to an error of the file system that means it. It is not for errors of a Put's reader,
// which may be about other files.
func denied(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", storage.ErrDenied, err)
	}
	return err
}

// unreadable is denied for an error of reading, and adds storage.ErrUnreadable to one that the disk gives each time.
func unreadable(err error) error {
	for _, broken := range []error{syscall.EIO, syscall.EBADMSG, syscall.EUCLEAN} {
		if errors.Is(err, broken) {
			return fmt.Errorf("%w: check the disk: %w", storage.ErrUnreadable, err)
		}
	}
	return denied(err)
}
